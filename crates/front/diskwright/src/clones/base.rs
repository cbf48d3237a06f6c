//! Bases of overlays.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use disk::BlockDevice;

use super::overlay;
use crate::{Error, Result, anywhere, lock};

/// Base of an overlay: its device and identity.
pub(crate) struct Base {
    pub(crate) device: Arc<dyn BlockDevice>,
    /// Bases with the same identity have the same bytes.
    pub(crate) identity: String,
}

/// Access to the base of an overlay.
#[derive(Clone, Copy, Default)]
pub(super) struct BaseAccess {
    /// Whether files are not locked.
    pub(super) unlocked: bool,
    /// Number of overlays above.
    depth: u32,
}

impl BaseAccess {
    /// Greatest number of overlays above each other.
    const DEPTH_MAX: u32 = 32;

    /// Returns the access of an overlay with nothing above it.
    pub(super) fn new(unlocked: bool) -> Self {
        Self { unlocked, depth: 0 }
    }

    /// Returns the access to what lies below the overlay `file`.
    pub(super) fn below(self, file: &Path) -> Result<Self> {
        let depth = self.depth + 1;
        if depth > Self::DEPTH_MAX {
            let problem = format!("more than {} overlays lie above each other", Self::DEPTH_MAX);
            let advice = "commit a snapshot to a new image, and clone that";
            return Err(Error::image(file, vfs::Error::unsupported(problem, advice)));
        }
        Ok(Self { depth, ..self })
    }
}

/// Opens a file, an overlay or a remote image as the base of an overlay. A local file is identified by its length and
/// modification time.
pub(super) fn open_base(word: &Path, access: BaseAccess) -> Result<Base> {
    if let Some(base) = anywhere::open_base(word, access.unlocked)? {
        return Ok(base);
    }
    let file = lock::open_to_read(word, access.unlocked)?;
    let identity = identity_of_file("file", word, &file)?;
    if overlay::is_overlay(word) {
        // The lock on this descriptor stays until the overlay has its own.
        let device = overlay::read(word, None, access)?.device;
        return Ok(Base { device: Arc::new(device), identity });
    }
    let device = lock::device(word, file)?;
    Ok(Base { device: Arc::new(device), identity })
}

/// Returns a name of the location that is independent of the current directory.
pub(super) fn lasting(word: &Path) -> Result<String> {
    match anywhere::lasting_name(word)? {
        Some(name) => Ok(name),
        None => absolute(word).and_then(|path| utf_8(&path).map(str::to_owned)),
    }
}

pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|e| Error::host("find", path, e))
}

/// Returns the name as text, as the header of an overlay stores it.
pub(crate) fn utf_8(path: &Path) -> Result<&str> {
    let not_text = || Error::Usage(format!("{}: its name is not UTF-8", crate::text::shown(path)));
    path.to_str().ok_or_else(not_text)
}

/// Returns the identity of a file that does not change.
pub(crate) fn identity_of_file(kind: &str, path: &Path, file: &File) -> Result<String> {
    let failed = |e| Error::host("read", path, e);
    let metadata = file.metadata().map_err(failed)?;
    let changed = metadata.modified().map_err(failed)?;
    let changed = changed.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    Ok(format!("{kind} of {} bytes, changed at {changed} ns", metadata.len()))
}
