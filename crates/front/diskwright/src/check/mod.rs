//! Checks of images. A report contains the damage, its location and the effect of a repair.
//!
//! [`check()`] is sufficient for most programs. It returns a [`Report`], which can be iterated and written as text or
//! JSON. [`ImageCheck`] reports each [`Finding`] as it is found, for progress display and cancellation.
//!
//! Checks never write to the image. The journal or log is replayed in memory first, so the check examines the state
//! after a mount.
//!
//! ```no_run
//! use diskwright::ImageOptions;
//! use diskwright::check::{Options, Verdict, check};
//!
//! # fn main() -> diskwright::Result<()> {
//! let report = check("root.img".as_ref(), &ImageOptions::default(), &Options::default())?;
//! if report.verdict() != Verdict::Clean {
//!     println!("{} findings", report.count());
//! }
//! # Ok(()) }
//! ```

mod collect;
pub(crate) mod json;
pub(crate) mod meter;
mod probe;
mod report;
#[cfg(test)]
mod samples;
pub(crate) mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::BlockDevice;
pub use vfs::check::{
    Code, Finding, FindingCounter, FindingPlace, Observer, Options, Phase, Severity, Silent,
    Summary,
};

pub use crate::format::Format;
pub use collect::{Collector, Limits};
pub use json::{error_line, finding_line};
pub use report::{DamagedFiles, FindingsOfKind, Report, Verdict};

use crate::dispatch::check as dispatch;
use crate::{Error, ImageOptions, Result, SuperblockPlace, image};
use meter::Meter;

/// Checks an image and collects findings within the default [`Limits`].
///
/// ```no_run
/// use diskwright::ImageOptions;
/// use diskwright::check::{Options, check};
///
/// # fn main() -> diskwright::Result<()> {
/// let report = check("root.img".as_ref(), &ImageOptions::default(), &Options::default())?;
/// for kind in &report.kinds {
///     println!("{} times {}: {}", kind.count, kind.code.name, kind.code.meaning);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Same as [`ImageCheck::open`] and [`ImageCheck::check`]. Damage is not an error.
pub fn check(path: &Path, open: &ImageOptions, options: &Options) -> Result<Report> {
    let subject = ImageCheck::open(path, open)?;
    let collector = Collector::new(Limits::default());
    let summary = subject.check(options, &collector)?;
    Ok(collector.report(&subject, summary))
}

/// Maximum number of files on bad areas that a report contains.
const DAMAGED_FILES_MAX: usize = 1000;

/// Returns the files on bad areas of a copy with a mapfile. Without a mapfile, all contents are read.
///
/// # Errors
/// Same as [`ImageOptions::open`].
pub fn files_on_bad_areas(path: &Path, open: &ImageOptions) -> Result<DamagedFiles> {
    let mut damaged = DamagedFiles::default();
    let options = crate::damaged::SearchOptions::default();
    let report = crate::damaged::search(path, open, &options, &mut |file| {
        damaged.count += 1;
        if damaged.files.len() < DAMAGED_FILES_MAX {
            damaged.files.push(file.clone());
        }
        Ok(())
    })?;
    damaged.is_complete = report.is_complete();
    Ok(damaged)
}

/// Returns all codes of a format, in catalogue order.
pub fn codes(format: Format) -> &'static [&'static Code] {
    dispatch::codes(format)
}

/// Image opened for a check. Other programs cannot change it during the check, unless [`ImageOptions::norecovery`]
/// allows it.
pub struct ImageCheck {
    path: PathBuf,
    format: Format,
    device: Arc<Meter>,
    norecovery: bool,
    superblock: Option<SuperblockPlace>,
}

impl ImageCheck {
    /// Opens an image and detects its format: by its superblock or, if that is lost, by superblock copies and other
    /// structures.
    ///
    /// # Errors
    /// If the file cannot be read or is in use, or the format cannot be detected. The error describes the detected
    /// contents.
    pub fn open(path: &Path, options: &ImageOptions) -> Result<Self> {
        Self::with_device(path, image::open_device(path, options)?, options)
    }

    fn with_device(
        path: &Path,
        device: Arc<dyn BlockDevice>,
        options: &ImageOptions,
    ) -> Result<Self> {
        let device = Arc::new(Meter::new(device));
        let of_format = Arc::clone(&device) as Arc<dyn BlockDevice>;
        let format = format_of_device(path, &of_format, options);
        let format = format.map_err(|error| device.blame(path, error))?;
        let ImageOptions { norecovery, superblock, .. } = *options;
        Ok(Self { path: path.to_owned(), format, device, norecovery, superblock })
    }

    /// Opens the image on any device, which must not change meanwhile. Errors call it `name`.
    ///
    /// # Errors
    /// Same as [`Self::open`].
    pub fn on_device(
        name: &Path,
        device: Arc<dyn BlockDevice>,
        options: &ImageOptions,
    ) -> Result<Self> {
        let device = image::window(name, device, options)?;
        Self::with_device(name, device, options)
    }

    /// Returns the path of the image.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the format for the check.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the number of bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.device.bytes_read()
    }

    /// Returns the first device error so far, with its offset. The check is incomplete then, and findings may be caused
    /// by the error.
    pub fn device_error(&self) -> Option<&str> {
        self.device.first_error()
    }

    /// Checks the whole image and reports each finding to `observer`. With [`ImageOptions::norecovery`] or the
    /// corresponding option, the image is checked without recovery.
    ///
    /// # Errors
    /// If the image cannot be checked at all: it has unknown features, or its log is on another device.
    pub fn check(&self, options: &Options, observer: &dyn Observer) -> Result<Summary> {
        let options = options.with_norecovery(options.norecovery || self.norecovery);
        let device = Arc::clone(&self.device) as Arc<dyn BlockDevice>;
        let checked = match self.superblock {
            Some(place) => ext4::check::check_by_copy(device, place, &options, observer),
            None => dispatch::check(self.format, device, &options, observer),
        };
        match checked {
            // The report contains the device error.
            Err(_) if self.device_error().is_some() => Ok(Summary::default()),
            checked => checked.map_err(|source| Error::image(&self.path, source)),
        }
    }
}

/// Returns the format of a device, by its superblock or by other structures.
pub(crate) fn format_of_device(
    path: &Path,
    device: &Arc<dyn BlockDevice>,
    options: &ImageOptions,
) -> Result<Format> {
    if options.superblock.is_some() {
        return Ok(Format::Ext4);
    }
    Ok(match image::format_of(path, &**device)? {
        Some(format) => format,
        None => match probe::format_without_superblock(&**device) {
            Some(format) => format,
            None => match image::probe(path, device, options) {
                Ok(format) => format,
                Err(error) => probe::format_by_search(&**device).ok_or(error)?,
            },
        },
    })
}

pub use crate::dispatch::check::check as check_device;
