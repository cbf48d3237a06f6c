//! `commit`: an overlay and what lies below become an image of their own.

use std::path::{Path, PathBuf};

use blockdev::{BlockDevice, FileAt};
use serde::Serialize;

use super::overlay;
use crate::lock::Replace;
use crate::replace::Replacement;
use crate::{Error, Result};

/// Bytes that are copied together.
const PIECE_BYTES: u64 = 1 << 20;

/// Unit in which zeros become holes, in bytes.
const HOLE_BYTES: usize = 4096;

/// How an overlay becomes an image.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CommitOptions {
    /// The overlay.
    pub overlay: PathBuf,
    /// The new image.
    pub image: PathBuf,
    /// What lies below, if it is somewhere else than when the overlay was made.
    pub base: Option<PathBuf>,
    /// Replace a file that is there.
    pub force: bool,
}

impl CommitOptions {
    /// The new image is `image`, made of `overlay` and what it was made for.
    pub fn new(overlay: impl Into<PathBuf>, image: impl Into<PathBuf>) -> Self {
        Self { overlay: overlay.into(), image: image.into(), base: None, force: false }
    }
}

setters!(CommitOptions { base: Option<PathBuf>, force: bool });

/// What was made.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CommitReport {
    /// What lay below, as it was named when the overlay was made.
    pub base: String,
    /// Bytes of the image.
    pub bytes: u64,
    /// Bytes of it that the overlay had.
    pub changed_bytes: u64,
}

/// Makes an image of an overlay and of what lies below it. The overlay stays as it is.
///
/// # Errors
/// If the overlay is of something else, one of both cannot be read, or the image cannot be written; nothing is left under
/// its name then.
pub fn commit(options: &CommitOptions, progress: &mut dyn FnMut(u64)) -> Result<CommitReport> {
    let overlay = overlay::read(&options.overlay, options.base.as_deref())?;
    let image = &*options.image;
    let replace = if options.force { Replace::Anything } else { Replace::Empty };
    let new = Replacement::create(image, replace).map_err(|refused| refused.at("write", image))?;
    let failed = |e| Error::host("write", image, e);
    new.file().set_len(overlay.device.len()).map_err(failed)?;
    copy(&overlay.device, new.file(), image, progress)?;
    new.file().sync_data().map_err(failed)?;
    new.keep().map_err(|refused| refused.at("write", image))?;
    let changed = overlay.device.written();
    Ok(CommitReport {
        base: overlay.about.base,
        bytes: overlay.device.len(),
        changed_bytes: changed.iter().map(|range| range.end - range.start).sum(),
    })
}

/// Copies all that is not zero.
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
        device.read_ahead(start + count, 8 * PIECE_BYTES);
        let piece = &mut buffer[..count as usize];
        device.read_at(start, piece).map_err(|e| Error::host("read what becomes", image, e))?;
        for (number, part) in piece.chunks(HOLE_BYTES).enumerate() {
            if part.iter().any(|&byte| byte != 0) {
                let at = start + (number * HOLE_BYTES) as u64;
                file.write_all_at(part, at).map_err(|e| Error::host("write", image, e))?;
            }
        }
        progress(count);
    }
    Ok(())
}
