//! Distribution formats of finished images: qcow2 for virtual machines, Android sparse images for flashing, zstd with a
//! seek table for random access.
//!
//! Each writer reads a finished raw image sequentially. The output depends only on the bytes, holes and free space of
//! the image, not on the number of threads. Holes and free space are never read, and take no space if the format can
//! represent them.

mod chunks;
mod qcow2;
mod raw;
mod sparse;
mod zst;

use std::fs::File;
use std::io;

pub use chunks::for_each as for_each_chunk;
pub use raw::{CHUNK_BYTES, Raw, write_sparse};

/// A format of finished images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputFormat {
    /// The bytes of the image, with holes.
    #[default]
    Raw,
    /// qcow2, version 3.
    Qcow2,
    /// An Android sparse image, version 1.0.
    Sparse,
    /// zstd frames of 1 MiB and a seek table.
    Zstd,
}

impl OutputFormat {
    /// Returns the name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Sparse => "android-sparse",
            Self::Zstd => "zstd",
        }
    }

    /// Checks whether an image of `len` bytes fits into the format.
    ///
    /// # Errors
    /// The reason, with advice.
    pub fn check(self, len: u64) -> Result<(), Error> {
        match self {
            Self::Sparse => sparse::check(len),
            Self::Zstd => zst::check(len),
            Self::Qcow2 => qcow2::check(len),
            Self::Raw => Ok(()),
        }
    }
}

/// Error of writing an image in a format.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image does not fit into the format.
    #[error("{format} cannot store this image: {why}")]
    Unfit {
        /// Name of the format.
        format: &'static str,
        /// The limit, with advice.
        why: String,
    },
    /// The raw image cannot be read.
    #[error("cannot read the raw image: {0}")]
    Read(io::Error),
    /// The file cannot be written.
    #[error("cannot write the image: {0}")]
    Write(io::Error),
}

/// Writes an image into an empty file. Calls `progress` with the number of image bytes processed.
///
/// # Errors
/// If the image does not fit into the format, or a file fails. The output is unusable then.
pub fn write(
    raw: &Raw<'_>,
    format: OutputFormat,
    out: &File,
    threads: usize,
    progress: &dyn Fn(u64),
) -> Result<(), Error> {
    format.check(raw.len())?;
    match format {
        OutputFormat::Raw => chunks::copy_to(raw, out, progress),
        OutputFormat::Qcow2 => qcow2::write(raw, out, progress),
        OutputFormat::Sparse => sparse::write(raw, out, progress),
        OutputFormat::Zstd => zst::write(raw, out, threads, progress),
    }
}
