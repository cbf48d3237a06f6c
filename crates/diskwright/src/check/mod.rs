//! Checking an image: what is wrong with it, where, and what a repair would do.
//!
//! [`check()`] is all that most programs need. It gives a [`Report`], which can be walked through, and written as
//! text or JSON. [`Subject`] is for those that want to be told of each [`Finding`] as it comes, to show how far
//! the check is, or to end it early.
//!
//! Nothing is ever written to an image, and what its journal or log holds is replayed in memory first: what is
//! checked is what a mount would show.
//!
//! ```no_run
//! use diskwright::OpenImage;
//! use diskwright::check::{Options, Verdict, check};
//!
//! # fn main() -> diskwright::Result<()> {
//! let report = check("root.img".as_ref(), &OpenImage::default(), &Options::default())?;
//! if report.verdict() != Verdict::Clean {
//!     println!("{} findings", report.count());
//! }
//! # Ok(()) }
//! ```

mod collect;
mod dispatch;
pub(crate) mod json;
pub(crate) mod meter;
mod probe;
mod report;
#[cfg(test)]
mod samples;
pub(crate) mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use ::check::{Code, Finding, Observer, Options, Phase, Place, Severity, Summary};
use blockdev::BlockDevice;

pub use crate::format::Format;
pub use collect::{Collector, Limits};
pub use json::{error_line, finding_line};
pub use report::{FindingsOfKind, Report, Verdict};

use crate::{Error, OpenImage, Result, SuperblockPlace, image};
use meter::Meter;

/// Checks an image and collects what is wrong, as far as [`Limits`] allow by default.
///
/// ```no_run
/// use diskwright::OpenImage;
/// use diskwright::check::{Options, check};
///
/// # fn main() -> diskwright::Result<()> {
/// let report = check("root.img".as_ref(), &OpenImage::default(), &Options::default())?;
/// for kind in &report.kinds {
///     println!("{} times {}: {}", kind.count, kind.code.name, kind.code.meaning);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`Subject::open`] and [`Subject::check`]. Damage is no error.
pub fn check(path: &Path, open: &OpenImage, options: &Options) -> Result<Report> {
    let subject = Subject::open(path, open)?;
    let collector = Collector::new(Limits::default());
    let summary = subject.check(options, &collector)?;
    Ok(collector.report(&subject, summary))
}

/// All that can be found in images of a format, in the order of its catalogue.
pub fn codes(format: Format) -> &'static [&'static Code] {
    dispatch::codes(format)
}

/// An image that is open to be checked. Nobody can change it meanwhile, unless [`OpenImage::norecovery`] allows it.
pub struct Subject {
    path: PathBuf,
    format: Format,
    device: Arc<Meter>,
    norecovery: bool,
    superblock: Option<SuperblockPlace>,
}

impl Subject {
    /// Opens an image and finds its format: by its superblock or, where that is gone, by what is left of others
    /// and of the structures beside it.
    ///
    /// # Errors
    /// If the file cannot be read or is in use, or nothing in it tells a format; the error says what it seems to be
    /// instead.
    pub fn open(path: &Path, options: &OpenImage) -> Result<Self> {
        Self::with_device(path, image::open_device(path, options)?, options)
    }

    fn with_device(path: &Path, device: Arc<dyn BlockDevice>, options: &OpenImage) -> Result<Self> {
        let device = Arc::new(Meter::new(device));
        let of_format = Arc::clone(&device) as Arc<dyn BlockDevice>;
        let format = format_of_device(path, &of_format, options);
        let format = format.map_err(|error| device.blame(path, error))?;
        let OpenImage { norecovery, superblock, .. } = *options;
        Ok(Self { path: path.to_owned(), format, device, norecovery, superblock })
    }

    /// The same of what lies on any device, which nobody else may change meanwhile. Errors call it `name`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn on_device(
        name: &Path,
        device: Arc<dyn BlockDevice>,
        options: &OpenImage,
    ) -> Result<Self> {
        let device = image::window(name, device, options)?;
        Self::with_device(name, device, options)
    }

    /// The image file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The format that it is checked as.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Bytes read until now.
    pub fn bytes_read(&self) -> u64 {
        self.device.bytes_read()
    }

    /// The first error of its device until now, with its place. Then the check is incomplete: a finding may follow from
    /// it.
    pub fn device_error(&self) -> Option<&str> {
        self.device.first_error()
    }

    /// Looks at everything in the image and tells `observer` of each thing that is wrong. The image is checked as
    /// it lies if [`OpenImage::norecovery`] or the options ask for it.
    ///
    /// # Errors
    /// If it cannot be checked at all: it has features that are not known, or its log is on another device.
    pub fn check(&self, options: &Options, observer: &dyn Observer) -> Result<Summary> {
        let options = options.with_norecovery(options.norecovery || self.norecovery);
        let device = Arc::clone(&self.device) as Arc<dyn BlockDevice>;
        let checked = match self.superblock {
            Some(place) => ext4::check::check_by_copy(device, place, &options, observer),
            None => dispatch::check(self.format, device, &options, observer),
        };
        match checked {
            // The report has the error.
            Err(_) if self.device_error().is_some() => Ok(Summary::default()),
            checked => checked.map_err(|source| Error::Image { image: self.path.clone(), source }),
        }
    }
}

/// The format of what is open, by its superblock or by what is left.
pub(crate) fn format_of_device(
    path: &Path,
    device: &Arc<dyn BlockDevice>,
    options: &OpenImage,
) -> Result<Format> {
    if options.superblock.is_some() {
        return Ok(Format::Ext4);
    }
    Ok(match image::format_of(path, &**device)? {
        Some(kind) => kind.into(),
        None => match probe::format_without_superblock(&**device) {
            Some(format) => format,
            None => match image::probe_kind(path, device, options) {
                Ok(kind) => kind.into(),
                Err(error) => probe::format_by_search(&**device).ok_or(error)?,
            },
        },
    })
}

#[cfg(feature = "build")]
pub(crate) use dispatch::check as check_device;

impl From<image::Kind> for Format {
    fn from(kind: image::Kind) -> Self {
        match kind {
            image::Kind::Ext => Self::Ext4,
            image::Kind::Xfs => Self::Xfs,
        }
    }
}
