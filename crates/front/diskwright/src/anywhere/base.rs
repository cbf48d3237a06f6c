//! Bases of overlays.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use disk::BlockDevice;

use crate::{Error, Result};

/// Base of an overlay: its device and identity.
pub(crate) struct Base {
    pub(crate) device: Arc<dyn BlockDevice>,
    /// Bases with the same identity have the same bytes.
    pub(crate) identity: String,
}

/// Returns the path from the root of the host.
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
