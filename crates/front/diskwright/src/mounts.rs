//! Table of mounts.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
#[cfg(any(test, feature = "workload"))]
use std::path::Path;
use std::path::PathBuf;

/// Types of this program's mounts in `/proc/mounts`: image files, and block devices mounted by root.
const FS_TYPES: [&str; 2] = ["fuse.diskwright", "fuseblk.diskwright"];

/// Mounts visible to this process.
const TABLE: &str = "/proc/self/mounts";

/// Entry of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Mount source: a device or another name.
    pub(crate) source: PathBuf,
    pub(crate) point: PathBuf,
    pub(crate) fs_type: String,
    pub(crate) options: String,
}

impl Mount {
    /// Returns the mount that contains a directory, or `None` if unknown.
    #[cfg(any(test, feature = "workload"))]
    pub(crate) fn of(directory: &Path) -> Option<Self> {
        let directory = fs::canonicalize(directory).ok()?;
        find(&fs::read(TABLE).ok()?, &directory)
    }

    /// Returns all mounts visible to this process, oldest first.
    pub(crate) fn all() -> io::Result<Vec<Self>> {
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

    /// Returns whether its files exist only in memory.
    #[cfg(feature = "workload")]
    pub(crate) fn is_cache(&self) -> bool {
        matches!(self.fs_type.as_str(), "tmpfs" | "ramfs" | "devtmpfs")
    }
}

/// Returns the mount with the longest mount point above `directory`. Later mounts at the same point hide earlier ones.
#[cfg(any(test, feature = "workload"))]
fn find(table: &[u8], directory: &Path) -> Option<Mount> {
    let mounts = table.split(|&byte| byte == b'\n').filter_map(parse);
    let above = mounts.filter(|mount| directory.starts_with(&mount.point));
    // `max_by_key` returns the last of equal elements.
    above.max_by_key(|mount| mount.point.components().count())
}

fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let mut path = || Some(OsString::from_vec(unescaped(fields.next()?)).into());
    let (source, point) = (path()?, path()?);
    let mut text = || fields.next().map(|field| String::from_utf8_lossy(field).into_owned());
    Some(Mount { source, point, fs_type: text()?, options: text()? })
}

/// Decodes the kernel's escapes of white space and backslashes, such as `\040`.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| first == b'\\').and_then(octal);
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    bytes
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
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

    fn fs_type(directory: &str) -> String {
        find(LINES, Path::new(directory)).unwrap().fs_type
    }

    #[test]
    fn the_longest_mount_point_counts_and_of_equals_the_last() {
        assert_eq!(fs_type("/home/somebody"), "ext4");
        assert_eq!(fs_type("/proc/1"), "proc");
        assert_eq!(fs_type("/data/x"), "btrfs");
        assert_eq!(fs_type("/database"), "ext4");
        assert_eq!(fs_type("/data/with space\\/x"), "tmpfs");
        assert_eq!(find(LINES, Path::new("/data")).unwrap().options, "ro");
        assert_eq!(find(b"", Path::new("/")), None);
    }

    #[test]
    fn this_machine_has_a_mount_for_every_directory() {
        assert_eq!(Mount::of(Path::new("/proc/self")).unwrap().fs_type, "proc");
        assert_eq!(Mount::of(Path::new("/no such directory")), None);
    }
}
