//! Checking an image: what is wrong with it, where, and what a repair would do.
//!
//! A [`Subject`] is an image that is open to be checked; a [`Collector`] is told of each [`Finding`] and makes a
//! [`Report`] of them, which can be walked through, and written as text or JSON.
//!
//! Nothing is ever written to an image.

mod collect;
mod json;
mod meter;
mod probe;
mod report;
#[cfg(test)]
mod samples;
mod text;

use std::path::{Path, PathBuf};

pub use ::check::{Code, Finding, Observer, Options, Phase, Place, Severity, Summary};

pub use crate::build::Format;
pub use collect::{Collector, Limits};
pub use json::{error_line, finding_line};
pub use report::{FindingsOfKind, Report, Verdict};

use crate::{OpenImage, Result, image};
use meter::Meter;

/// An image that is open to be checked. Nobody can change it meanwhile, unless [`OpenImage::norecovery`] allows it.
pub struct Subject {
    path: PathBuf,
    format: Format,
    device: Meter,
}

impl Subject {
    /// Opens an image and finds its format: by its superblock or, where that is gone, by what is left of others
    /// and of the structures beside it.
    ///
    /// # Errors
    /// If the file cannot be read or is in use, or nothing in it tells a format; the error says what it seems to be
    /// instead.
    pub fn open(path: &Path, options: &OpenImage) -> Result<Self> {
        let device = image::open_device(path, options)?;
        let format = match image::format_of(path, &*device)? {
            Some(kind) => kind.into(),
            None => match probe::format_without_superblock(&*device) {
                Some(format) => format,
                None => image::probe_kind(path, &device, options)?.into(),
            },
        };
        Ok(Self { path: path.to_owned(), format, device: Meter::new(device) })
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
}

impl From<image::Kind> for Format {
    fn from(kind: image::Kind) -> Self {
        match kind {
            image::Kind::Ext => Self::Ext4,
            image::Kind::Xfs => Self::Xfs,
        }
    }
}
