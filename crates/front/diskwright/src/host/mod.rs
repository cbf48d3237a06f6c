//! Host-dependent functions, with the same interface for each host.
//!
//! `linux` uses system calls of Linux. `portable` uses the standard library, which is all there is on Windows and
//! sufficient on other hosts.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod mount_table;
#[cfg(not(target_os = "linux"))]
mod portable;

use std::io;
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(target_os = "linux")]
pub(crate) use mount_table::{device_mounts, unescaped};
#[cfg(not(target_os = "linux"))]
pub(crate) use portable::*;
#[cfg(unix)]
pub(crate) use std::os::unix::fs::FileTypeExt;

/// Mount of a block device, visible to this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "other hosts report none"))]
pub(crate) struct DeviceMount {
    /// Major and minor number of the device, as in `7:0`.
    pub(crate) number: String,
    /// Directory over which it is mounted.
    pub(crate) point: PathBuf,
    /// Options of the file system, separated by commas.
    pub(crate) options: String,
}

impl DeviceMount {
    /// Returns whether the mount permits changes.
    pub(crate) fn is_changing(&self) -> bool {
        self.options.split(',').any(|option| option == "rw")
    }
}

/// Identity of a host file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId {
    /// Device number.
    pub(crate) dev: u64,
    /// Inode number.
    pub(crate) ino: u64,
}

#[cfg(feature = "build")]
impl From<FileId> for import::FileId {
    fn from(id: FileId) -> Self {
        Self { dev: id.dev, ino: id.ino }
    }
}

/// Returns the identity of the file at a path.
///
/// # Errors
/// If the file is not accessible.
pub(crate) fn id_at(path: &Path) -> io::Result<FileId> {
    #[cfg(unix)]
    return std::fs::metadata(path).map(|found| id(&found));
    #[cfg(not(unix))]
    return id_of(&portable::open_to_ask(path)?);
}

/// Converts bytes to a path for messages, replacing invalid characters.
pub(crate) fn path_to_show(bytes: &[u8]) -> PathBuf {
    path(bytes).map_or_else(|_| String::from_utf8_lossy(bytes).into_owned().into(), Path::to_owned)
}

/// Returns whether two paths refer to the same file.
pub fn is_same_file(a: &Path, b: &Path) -> bool {
    matches!((id_at(a), id_at(b)), (Ok(a), Ok(b)) if a == b)
}

/// Returns the identity of the file at a path for sources, or `None` if unknown.
#[cfg(feature = "build")]
pub fn file_id(path: &Path) -> Option<import::FileId> {
    id_at(path).ok().map(Into::into)
}

/// Returns the identity of an open file.
///
/// # Errors
/// If the call fails.
#[cfg(unix)]
pub(crate) fn id_of(file: &std::fs::File) -> io::Result<FileId> {
    file.metadata().map(|found| id(&found))
}

#[cfg(unix)]
#[expect(clippy::unnecessary_cast, reason = "some Unix hosts have narrower types")]
fn id(found: &std::fs::Metadata) -> FileId {
    use std::os::unix::fs::MetadataExt;
    FileId { dev: found.dev() as u64, ino: found.ino() as u64 }
}
