//! What `publish` and `gc` do: images in object storage, cut into chunks that images share.
//!
//! ```no_run
//! use diskwright::publish::{PublishOptions, Silent, SweepOptions, gc, publish};
//!
//! # fn main() -> diskwright::Result<()> {
//! let done = publish(&PublishOptions::new("root.img", "s3://bucket/images"), &Silent)?;
//! println!("read it as {}", done.place);
//! gc("s3://bucket/images", &SweepOptions::default())?;
//! # Ok(()) }
//! ```

#[cfg(all(feature = "mount", target_os = "linux"))]
mod recording;

use std::fs::File;
use std::io::BufReader;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::publish::{CHUNK_BYTES_DEFAULT, Facts, Options, record};
pub use ::publish::{Observer, Patience, Report, Silent, Stage, SweepOptions, Swept};
use blockdev::BlockDevice;
use place::store::{self, Location};
#[cfg(all(feature = "mount", target_os = "linux"))]
pub(crate) use recording::Recording;
use serde::Serialize;

use crate::image::{Image, format_of, open_device};
use crate::{Error, OpenImage, Result};

/// What is published, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PublishOptions {
    /// The image.
    pub image: PathBuf,
    /// Where it is published: a prefix of a store, `s3://bucket/images`.
    pub url: String,
    /// The name that it gets there, instead of the file's without its ending.
    pub name: Option<String>,
    /// Where in the file it is.
    pub open: OpenImage,
    /// Bytes of a chunk: a power of two from 4 KiB to 16 MiB.
    pub chunk_bytes: u64,
    /// A record of what a start touches first (made by mounting it with a record).
    pub order: Option<PathBuf>,
    /// Sends chunks that are there already, too, to mend them.
    pub resend: bool,
}

impl PublishOptions {
    /// Publishes `image` below `url`.
    pub fn new(image: impl Into<PathBuf>, url: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            url: url.into(),
            name: None,
            open: OpenImage::default(),
            chunk_bytes: CHUNK_BYTES_DEFAULT.into(),
            order: None,
            resend: false,
        }
    }
}

setters!(PublishOptions {
    name: Option<String>,
    open: OpenImage,
    chunk_bytes: u64,
    order: Option<PathBuf>,
    resend: bool,
});

/// What was published, and where it is read.
#[derive(Clone, Debug, Serialize)]
pub struct PublishReport {
    /// The place that commands read the image from.
    pub place: String,
    /// What was sent.
    #[serde(flatten)]
    pub report: Report,
}

/// Publishes an image. Nobody can change it meanwhile.
///
/// # Errors
/// If the image cannot be read, the store fails, or somebody removes chunks there and does not end.
pub fn publish(options: &PublishOptions, observer: &dyn Observer) -> Result<PublishReport> {
    let name = match &options.name {
        Some(name) => name.clone(),
        None => name_of(&options.image)?,
    };
    ::publish::check_name(&name)?;
    let location = location(&options.url)?;
    let order = options.order.as_deref().map_or(Ok(Vec::new()), read_order)?;
    let device = open_device(&options.image, &options.open)?;
    let facts = facts(&options.image, &device, &options.open)?;
    let how = Options {
        chunk_bytes: options.chunk_bytes.try_into().unwrap_or(u32::MAX),
        order,
        resend: options.resend,
        ..Options::default()
    };
    let report = ::publish::publish(device, &location, &name, facts, &how, observer)?;
    let url = address::public(&options.url);
    let place = format!("{}/names/{name}", address::safe_line(url.trim_end_matches('/')));
    Ok(PublishReport { place, report })
}

/// Removes what no published image needs any more.
///
/// # Errors
/// If somebody publishes there and does not end, a manifest cannot be read, or the store fails.
pub fn gc(url: &str, options: &SweepOptions) -> Result<Swept> {
    Ok(::publish::sweep(&location(url)?, options)?)
}

fn location(url: &str) -> Result<Location> {
    store::open(&url.trim_end_matches('/').into()).map_err(|e| Error::Usage(e.to_string()))
}

fn name_of(image: &Path) -> Result<String> {
    let image = crate::text::public(image);
    let stem = image.file_stem().and_then(|stem| stem.to_str());
    stem.map(str::to_owned).ok_or_else(|| {
        Error::Usage("the file's name is none for a published image: give one with --name".into())
    })
}

fn read_order(path: &Path) -> Result<Vec<Range<u64>>> {
    let file = File::open(path).map_err(|e| Error::host("open", path, e))?;
    record::parse(BufReader::new(file)).map_err(|error| match error {
        record::RecordError::Io(e) => Error::host("read", path, e),
        error => {
            Error::Usage(format!("{}: no record of a start: {error}", crate::text::shown(path)))
        }
    })
}

/// What an image is. A disk with partitions, or one of another format, can be published too, and says nothing.
fn facts(path: &Path, device: &Arc<dyn BlockDevice>, options: &OpenImage) -> Result<Facts> {
    if format_of(path, &**device)?.is_none() {
        return Ok(Facts::default());
    }
    // The device is the part of the file that the options name.
    let whole = OpenImage { offset: 0, partition: None, ..*options };
    let image = Image::open_on(path, Arc::clone(device), &whole)?;
    let info = image.info();
    Ok(Facts {
        format: info.format.clone(),
        label: info.label.clone(),
        uuid: info.uuid.clone(),
        block_bytes: info.block_size,
    })
}
