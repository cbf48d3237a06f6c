//! What differs between the hosts that this program runs on, in small calls that each of them has.
//!
//! `linux` knows all that Linux tells of files; `portable` has what the standard library tells, which is what there is
//! on Windows, and enough elsewhere.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod portable;

use std::io;
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(not(target_os = "linux"))]
pub(crate) use portable::*;
#[cfg(unix)]
pub(crate) use std::os::unix::fs::FileTypeExt;

/// What identifies a file on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    /// The device it is on.
    pub(crate) dev: u64,
    /// Its number there.
    pub(crate) ino: u64,
}

#[cfg(feature = "build")]
impl From<FileId> for source::FileId {
    fn from(id: FileId) -> Self {
        Self { dev: id.dev, ino: id.ino }
    }
}

/// What identifies the file that a path leads to.
///
/// # Errors
/// If it cannot be asked.
pub(crate) fn id_at(path: &Path) -> io::Result<FileId> {
    #[cfg(unix)]
    return std::fs::metadata(path).map(|found| id(&found));
    #[cfg(not(unix))]
    return id_of(&portable::open_to_ask(path)?);
}

/// The same, for messages: what cannot be a path is replaced.
pub(crate) fn path_to_show(bytes: &[u8]) -> PathBuf {
    path(bytes).map_or_else(|_| String::from_utf8_lossy(bytes).into_owned().into(), Path::to_owned)
}

/// Whether two paths lead to the same file.
pub fn is_same_file(a: &Path, b: &Path) -> bool {
    matches!((id_at(a), id_at(b)), (Ok(a), Ok(b)) if a == b)
}

/// What identifies the file that a path leads to, for sources; `None` if it cannot be told.
#[cfg(feature = "build")]
pub fn file_id(path: &Path) -> Option<source::FileId> {
    id_at(path).ok().map(Into::into)
}

/// What identifies an open file.
///
/// # Errors
/// If it cannot be asked.
#[cfg(unix)]
pub(crate) fn id_of(file: &std::fs::File) -> io::Result<FileId> {
    file.metadata().map(|found| id(&found))
}

#[cfg(unix)]
#[expect(clippy::unnecessary_cast, reason = "not every Unix has 64 bits for both")]
fn id(found: &std::fs::Metadata) -> FileId {
    use std::os::unix::fs::MetadataExt;
    FileId { dev: found.dev() as u64, ino: found.ino() as u64 }
}
