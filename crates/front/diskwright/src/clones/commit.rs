//! `commit`: creating a separate image from an overlay and its base.

use std::io;
use std::path::{Path, PathBuf};

use disk::{BlockDevice, ContentKind, FileAt, is_zero};
use serde::Serialize;

use super::overlay::{self, BaseAccess};
use crate::lock::Replace;
use crate::replace::Replacement;
use crate::{Error, Result};

/// Copy buffer size in bytes.
const PIECE_BYTES: u64 = 1 << 20;

/// Granularity of holes in bytes.
const HOLE_BYTES: usize = 4096;

/// Options for creating an image from an overlay.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CommitOptions {
    /// The overlay.
    pub overlay: PathBuf,
    /// The new image.
    pub image: PathBuf,
    /// Base of the overlay, if it has moved.
    pub base: Option<PathBuf>,
    /// Replace an existing file.
    pub force: bool,
}

impl CommitOptions {
    /// Creates options for creating `image` from `overlay` and its base.
    pub fn new(overlay: impl Into<PathBuf>, image: impl Into<PathBuf>) -> Self {
        Self { overlay: overlay.into(), image: image.into(), base: None, force: false }
    }
}

setters!(CommitOptions { base: Option<PathBuf>, force: bool });

/// Result of a commit.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CommitReport {
    /// Base as named when the overlay was created.
    pub base: String,
    /// Size of the image in bytes.
    pub bytes: u64,
    /// Number of bytes from the overlay.
    pub changed_bytes: u64,
}

/// Creates an image from an overlay and its base. The overlay is not modified.
///
/// # Errors
/// If the overlay belongs to another base, either cannot be read, or the image cannot be written. No file remains under
/// its name then.
pub fn commit(options: &CommitOptions, progress: &mut dyn FnMut(u64)) -> Result<CommitReport> {
    let image = &*options.image;
    let replace = if options.force { Replace::Anything } else { Replace::Empty };
    // Locked first, because it may be the base, which the overlay locks too.
    let new = Replacement::create(image, replace).map_err(|refused| refused.at("write", image))?;
    let access = BaseAccess { claimed: Some(image), ..BaseAccess::default() };
    let overlay = overlay::read(&options.overlay, options.base.as_deref(), access)?;
    let failed = |e| Error::host("write", image, e);
    new.file().set_len(overlay.device.len()).map_err(failed)?;
    copy(&overlay.device, new.file(), image, progress)?;
    new.file().sync_data().map_err(failed)?;
    new.keep().map_err(|refused| refused.at("write", image))?;
    // The clone may be reset next, so the name must be durable.
    super::sync(super::directory_of(image))?;
    let changed = overlay.device.written();
    Ok(CommitReport {
        base: overlay.about.base,
        bytes: overlay.device.len(),
        changed_bytes: changed.iter().map(|range| range.end - range.start).sum(),
    })
}

/// Copies all data except zeros.
fn copy(
    device: &dyn BlockDevice,
    file: &std::fs::File,
    image: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let mut buffer = vec![0; PIECE_BYTES as usize];
    let len = device.len();
    for start in (0..len).step_by(PIECE_BYTES as usize) {
        let count = PIECE_BYTES.min(len - start);
        device.read_ahead(start + count, 8 * PIECE_BYTES, ContentKind::Data);
        if device.known_zeros(start, count) != Some(start..start + count) {
            let piece = &mut buffer[..count as usize];
            device.read_at(start, piece).map_err(|e| Error::host("read", image, e))?;
            write_data(file, start, piece).map_err(|e| Error::host("write", image, e))?;
        }
        progress(count);
    }
    Ok(())
}

/// Writes a piece of an image without its zeros.
fn write_data(file: &std::fs::File, start: u64, piece: &[u8]) -> io::Result<()> {
    let mut at = 0;
    while at < piece.len() {
        let parts = piece[at..].chunks(HOLE_BYTES);
        let data: usize = parts.take_while(|part| !is_zero(part)).map(<[u8]>::len).sum();
        if data > 0 {
            file.write_all_at(&piece[at..at + data], start + at as u64)?;
        }
        at += data;
        let parts = piece[at..].chunks(HOLE_BYTES);
        at += parts.take_while(|part| is_zero(part)).map(<[u8]>::len).sum::<usize>();
    }
    Ok(())
}
