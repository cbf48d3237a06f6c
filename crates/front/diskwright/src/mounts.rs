//! Table of mounts.
//!
//! ```
//! let mounts = diskwright::mounts::MountEntry::all()?;
//! assert!(mounts.iter().any(|mount| mount.point.as_os_str() == "/proc"));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::host::unescaped;

/// Types of this program's mounts in `/proc/mounts`: image files, and block devices mounted by root.
const FS_TYPES: [&str; 2] = ["fuse.diskwright", "fuseblk.diskwright"];

/// Mounts visible to this process.
const TABLE: &str = "/proc/self/mounts";

/// Entry of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Mount source: a device or another name.
    pub source: PathBuf,
    /// Directory over which it is mounted.
    pub point: PathBuf,
    /// Name of its file system.
    pub fs_type: String,
    /// Options, separated by commas.
    pub options: String,
}

impl MountEntry {
    /// Returns all mounts visible to this process, oldest first.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub fn all() -> io::Result<Vec<Self>> {
        let table = fs::read(TABLE)?;
        Ok(table.split(|&byte| byte == b'\n').filter_map(parse).collect())
    }

    /// Returns whether it is a mount of this program.
    pub(crate) fn is_ours(&self) -> bool {
        FS_TYPES.contains(&self.fs_type.as_str())
    }

    /// Returns the user who mounted it, as reported by FUSE, or root.
    #[cfg(feature = "mount")]
    pub(crate) fn user(&self) -> u32 {
        let user = |word: &str| word.strip_prefix("user_id=")?.parse().ok();
        self.options.split(',').find_map(user).unwrap_or(0)
    }
}

fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let mut path = || Some(OsString::from_vec(unescaped(fields.next()?)).into());
    let (source, point) = (path()?, path()?);
    let mut text = || fields.next().map(|field| String::from_utf8_lossy(field).into_owned());
    Some(MountEntry { source, point, fs_type: text()?, options: text()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &[u8] = b"/dev/vda / ext4 rw,relatime 0 0\n\
        proc /proc proc rw 0 0\n\
        /dev/vdb /data xfs rw,noatime 0 0\n\
        tmpfs /data/with\\040space\\134 tmpfs rw,size=4k 0 0\n\
        /dev/vdc /data btrfs ro 0 0\n\
        broken\n";

    #[test]
    fn lines_are_parsed_with_their_escapes_and_broken_ones_skipped() {
        let mounts: Vec<_> = LINES.split(|&byte| byte == b'\n').filter_map(parse).collect();
        let points: Vec<_> = mounts.iter().filter_map(|mount| mount.point.to_str()).collect();
        assert_eq!(points, ["/", "/proc", "/data", "/data/with space\\", "/data"]);
        assert_eq!((&*mounts[3].fs_type, &*mounts[4].options), ("tmpfs", "ro"));
    }
}
