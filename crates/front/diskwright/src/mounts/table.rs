//! The table of mounts of Linux (proc(5)).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::{fs, io};

use super::entry::MountEntry;
use crate::host::unescaped;

/// Mounts visible to this process.
const TABLE: &str = "/proc/self/mounts";

/// Reads the table.
pub(super) fn read() -> io::Result<Vec<MountEntry>> {
    let table = fs::read(TABLE)?;
    Ok(table.split(|&byte| byte == b'\n').filter_map(parse).collect())
}

fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let mut path = || Some(OsString::from_vec(unescaped(fields.next()?)).into());
    let (source, point) = (path()?, path()?);
    let mut text = || fields.next().map(|field| String::from_utf8_lossy(field).into_owned());
    Some(MountEntry { source, point, fs_type: text()?, options: text()?, way: None })
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
