//! Finished images in the formats that people ship: qcow2 for virtual machines, Android sparse images for flashing,
//! zstd with a seek table for downloads that are read in places.
//!
//! Each writer reads a finished raw image from its front to its end and depends on nothing but its bytes, what of
//! them are holes, and what is free: the same image gives the same file, whatever the number of threads. What is a
//! hole or free is never read, and takes no space where the format has a word for it.
#![forbid(unsafe_code)]

mod qcow2;
mod raw;
mod sparse;
mod zst;

use std::fs::File;
use std::io;

pub use raw::Raw;

/// A format of finished images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The bytes of the image as they are, with holes.
    #[default]
    Raw,
    /// qcow2, version 3.
    Qcow2,
    /// An Android sparse image, version 1.0.
    Sparse,
    /// zstd frames of 1 MiB and a seek table.
    Zstd,
}

impl Format {
    /// Its name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Sparse => "android-sparse",
            Self::Zstd => "zstd",
        }
    }

    /// Whether an image of so many bytes can be written so.
    ///
    /// # Errors
    /// Why not, and what to do about it.
    pub fn check(self, len: u64) -> Result<(), Error> {
        match self {
            Self::Sparse => sparse::check(len),
            Self::Zstd => zst::check(len),
            Self::Qcow2 => qcow2::check(len),
            Self::Raw => Ok(()),
        }
    }
}

/// Why an image cannot be written in a format.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The format has no room for it.
    #[error("{format} cannot hold this image: {why}")]
    Unfit {
        /// Name of the format.
        format: &'static str,
        /// The limit, and what to do.
        why: String,
    },
    /// The raw image cannot be read.
    #[error("cannot read the raw image: {0}")]
    Read(io::Error),
    /// The file cannot be written.
    #[error("cannot write the image: {0}")]
    Write(io::Error),
}

/// Writes an image into an empty file. `progress` is told how many bytes of the image have been passed.
///
/// # Errors
/// If the format cannot hold it, or a file fails; what was written is of no use then.
pub fn write(
    raw: &Raw<'_>,
    format: Format,
    out: &File,
    threads: usize,
    progress: &dyn Fn(u64),
) -> Result<(), Error> {
    format.check(raw.len())?;
    match format {
        Format::Raw => raw.copy_to(out, progress),
        Format::Qcow2 => qcow2::write(raw, out, progress),
        Format::Sparse => sparse::write(raw, out, progress),
        Format::Zstd => zst::write(raw, out, threads, progress),
    }
}
