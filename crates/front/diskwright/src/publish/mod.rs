//! Images in object storage, divided into chunks that images share (`publish` and `gc`).
//!
//! ```no_run
//! use diskwright::publish::{PublishOptions, NoPublishReports, SweepOptions, gc, publish};
//!
//! # fn main() -> diskwright::Result<()> {
//! let done = publish(&PublishOptions::new("root.img", "s3://bucket/images"), &NoPublishReports)?;
//! println!("read it as {}", done.place);
//! gc("s3://bucket/images", &SweepOptions::default())?;
//! # Ok(()) }
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::BlockDevice;
use remote::place::store::{self, Location};
use remote::publish::{CHUNK_BYTES_DEFAULT, Facts, Options};
pub use remote::publish::{
    NoPublishReports, Observer, Patience, Stage, SweepOptions, Swept, UploadReport,
};
use serde::Serialize;

use crate::image::{format_of, open_device};
use crate::{Error, ImageOptions, Result, start_record};

/// Options for publishing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PublishOptions {
    /// The image.
    pub image: PathBuf,
    /// Target prefix in a store: `s3://bucket/images`.
    pub url: String,
    /// Published name, instead of the file name without its extension.
    pub name: Option<String>,
    /// Location of the image in the file.
    pub open: ImageOptions,
    /// Chunk size in bytes: a power of two from 4 KiB to 16 MiB.
    pub chunk_bytes: u64,
    /// Record of the ranges read first by a start, created by mounting with a record.
    pub order: Option<PathBuf>,
    /// Store a bundle of the image's metadata, and of the ranges in `order`.
    pub bundle: bool,
    /// Upload existing chunks again to repair them.
    pub resend: bool,
}

impl PublishOptions {
    /// Creates options for publishing `image` below `url`.
    pub fn new(image: impl Into<PathBuf>, url: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            url: url.into(),
            name: None,
            open: ImageOptions::default(),
            chunk_bytes: CHUNK_BYTES_DEFAULT.into(),
            order: None,
            bundle: false,
            resend: false,
        }
    }
}

setters!(PublishOptions {
    name: Option<String>,
    open: ImageOptions,
    chunk_bytes: u64,
    order: Option<PathBuf>,
    bundle: bool,
    resend: bool,
});

/// Result of publishing.
#[derive(Clone, Debug, Serialize)]
pub struct PublishReport {
    /// Location for reading the image.
    pub place: String,
    /// Statistics of the upload.
    #[serde(flatten)]
    pub report: UploadReport,
}

/// Publishes an image, which is locked meanwhile.
///
/// # Errors
/// If the image cannot be read, the store fails, or another program's removal of chunks there does not end.
pub fn publish(options: &PublishOptions, observer: &dyn Observer) -> Result<PublishReport> {
    let name = match &options.name {
        Some(name) => name.clone(),
        None => name_of(&options.image)?,
    };
    remote::publish::check_name(&name)?;
    let location = location(&options.url)?;
    let order = options.order.as_deref().map_or(Ok(Vec::new()), start_record::read)?;
    let device = open_device(&options.image, &options.open)?;
    let facts = facts(&options.image, &device, &options.open)?;
    let bundle = options.bundle.then(|| {
        let path = &options.image;
        crate::bundle::plan(path, &device, &whole(&options.open), order.clone())
    });
    let how = Options {
        bundle: bundle.transpose()?,
        chunk_bytes: options.chunk_bytes.try_into().unwrap_or(u32::MAX),
        order,
        resend: options.resend,
        ..Options::default()
    };
    let report = remote::publish::publish(device, &location, &name, facts, &how, observer)?;
    let url = disk::address::public(&options.url);
    let place = format!("{}/names/{name}", disk::address::safe_line(url.trim_end_matches('/')));
    Ok(PublishReport { place, report })
}

/// Removes chunks that no published image uses.
///
/// # Errors
/// If another program's publication there does not end, a manifest cannot be read, or the store fails.
pub fn gc(url: &str, options: &SweepOptions) -> Result<Swept> {
    Ok(remote::publish::sweep(&location(url)?, options)?)
}

fn location(url: &str) -> Result<Location> {
    store::open(&url.trim_end_matches('/').into()).map_err(|e| Error::Usage(e.to_string()))
}

fn name_of(image: &Path) -> Result<String> {
    let image = crate::text::public(image);
    let stem = image.file_stem().and_then(|stem| stem.to_str());
    stem.map(str::to_owned).ok_or_else(|| {
        Error::Usage(
            "the file name is not valid for a published image; choose a name with --name".into(),
        )
    })
}

/// Returns the options for an image on a device that is already the selected part.
fn whole(options: &ImageOptions) -> ImageOptions {
    ImageOptions { offset: 0, partition: None, ..options.clone() }
}

/// Returns the properties of an image. Partitioned disks and other formats can be published too, without properties.
fn facts(path: &Path, device: &Arc<dyn BlockDevice>, options: &ImageOptions) -> Result<Facts> {
    if format_of(path, &**device)?.is_none() {
        return Ok(Facts::default());
    }
    let info = whole(options).open_named(path, Arc::clone(device))?.info()?;
    Ok(Facts {
        format: info.format_name().to_owned(),
        label: info.label_text(),
        uuid: info.uuid_text(),
        block_bytes: info.block_size,
    })
}
