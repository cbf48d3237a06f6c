//! Images that bundles are made of, and the places of bundles.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use disk::BlockDevice;
use remote::bundle::{Identity, format};
use remote::opening::{ImageToBundle, OpenError, SUFFIX};
use remote::place::lazy::LazyOptions;
use remote::place::{ImageLocation, store};

use crate::replace::{Replace, Replacement};
use crate::{Error, ImageOptions, Result, anywhere, clones, lock, text};

/// Memory for chunks of a remote image. Its metadata are read twice.
const MEMORY_BYTES: u64 = 256 << 20;

/// An image that a bundle is made of.
pub(super) enum Source {
    /// A file, open and locked.
    File { path: PathBuf, device: Arc<dyn BlockDevice>, modified: SystemTime },
    /// An object.
    Object(ImageToBundle),
}

impl Source {
    pub(super) fn open(path: &Path, options: &ImageOptions) -> Result<Self> {
        let no_bundle =
            |advice: &str| Err(Error::Usage(format!("{}: {advice}", text::shown(path))));
        match ImageLocation::parse(path.as_os_str()) {
            Some(ImageLocation::Object(address)) if !address.public().ends_with(".zst") => {
                let location = store::open(&address).map_err(OpenError::from)?;
                if remote::publish::find(&location)?.is_some() {
                    return no_bundle("this is a published image; publish it again with --bundle");
                }
                let options =
                    LazyOptions { memory_bytes: MEMORY_BYTES, ..anywhere::options().clone() };
                let image = ImageToBundle::open(location, &options).map_err(OpenError::from)?;
                Ok(Self::Object(image))
            }
            Some(_) => {
                no_bundle("a bundle can be made of raw images only; convert the image first")
            }
            None if clones::open_image(path, options.norecovery)?.is_some() => {
                no_bundle("a bundle cannot be made of an overlay; write an image with commit first")
            }
            None => {
                let file = lock::open_to_read(path, options.norecovery)?;
                let modified = file.metadata().and_then(|metadata| metadata.modified());
                let modified = modified.map_err(|e| Error::host("read", path, e))?;
                let device = Arc::new(lock::device(path, file)?);
                Ok(Self::File { path: path.to_owned(), device, modified })
            }
        }
    }

    pub(super) fn device(&self) -> Arc<dyn BlockDevice> {
        match self {
            Self::File { device, .. } => Arc::clone(device),
            Self::Object(image) => Arc::clone(&image.device),
        }
    }

    /// Returns the identity of the image. An object must have a version.
    pub(super) fn identity(&self) -> Result<Identity> {
        match self {
            Self::File { path, device, modified } => {
                let seconds = seconds_of(*modified).as_secs() as i64;
                let identity = Identity::of_file(&**device, seconds);
                identity.map_err(|e| Error::host("read", path, e))
            }
            Self::Object(image) => match &image.identity {
                Identity::Hosted { etag: None, modified: None, .. } => Err(Error::Usage(
                    "the server sends neither ETag nor Last-Modified, so a bundle of an older \
                     version could not be detected"
                        .into(),
                )),
                identity => Ok(identity.clone()),
            },
        }
    }

    /// Waits for the end of the second in which a file was last changed. A later change then has another time.
    pub(super) fn wait_until_distinct(&self) -> Result<()> {
        let Self::File { path, modified, .. } = self else { return Ok(()) };
        let next = Duration::from_secs(seconds_of(*modified).as_secs() + 1);
        let rest = next.saturating_sub(seconds_of(SystemTime::now()));
        if rest <= Duration::from_secs(1) {
            thread::sleep(rest);
        }
        let now = std::fs::metadata(path).and_then(|metadata| metadata.modified());
        if now.map_err(|e| Error::host("read", path, e))? == *modified {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "{}: the image changed while its bundle was made; run the command again while no \
             program writes to it",
            text::shown(path)
        )))
    }
}

fn seconds_of(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Place of a bundle.
pub(super) enum Target {
    File(PathBuf),
    /// The object beside the image, by its address without secrets.
    Beside(String),
}

impl Target {
    /// Returns the place of the bundle of `source`: the file `out`, or a file or object beside the image.
    pub(super) fn of(source: &Source, image: &Path, out: Option<&Path>) -> Result<Self> {
        let target = match (out, source) {
            (Some(out), _) => Self::File(out.to_owned()),
            (None, Source::File { path, .. }) => {
                let mut name = OsString::from(path);
                name.push(SUFFIX);
                Self::File(name.into())
            }
            (None, Source::Object(object)) => {
                let beside = object.target().map(|address| Self::Beside(address.to_string()));
                beside.ok_or_else(|| {
                    Error::Usage(format!(
                        "{}: a bundle cannot be stored at this address; write it to a file with \
                         --out, and store it as the name of the image with {SUFFIX}",
                        text::shown(image)
                    ))
                })?
            }
        };
        if let Self::File(path) = &target {
            refuse_other_file(path)?;
        }
        Ok(target)
    }

    pub(super) fn shown(&self) -> String {
        match self {
            Self::File(path) => text::shown(path),
            Self::Beside(address) => address.clone(),
        }
    }

    pub(super) fn store(&self, source: &Source, bytes: Vec<u8>) -> Result<()> {
        match (self, source) {
            (Self::Beside(_), Source::Object(object)) => {
                Ok(object.store(bytes).map_err(OpenError::from)?)
            }
            (Self::Beside(_), Source::File { .. }) => unreachable!("files have files beside them"),
            (Self::File(path), _) => {
                let new = Replacement::create(path, Replace::Anything);
                let new = new.map_err(|refused| refused.at("make", path))?;
                new.file().write_all(&bytes).map_err(|e| Error::host("write", path, e))?;
                new.keep().map_err(|refused| refused.at("make", path))
            }
        }
    }
}

/// Refuses to replace a file that is not a bundle.
fn refuse_other_file(path: &Path) -> Result<()> {
    let Ok(mut file) = File::open(path) else { return Ok(()) };
    let mut magic = [0; format::MAGIC.len()];
    if file.read_exact(&mut magic).is_ok() && magic == format::MAGIC {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{}: the file exists and is not a metadata bundle; choose another name with --out",
        text::shown(path)
    )))
}
