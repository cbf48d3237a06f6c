//! Locks held by ancestors of this process.
//!
//! A program that creates a file system on a block device, such as systemd, locks it first so that others do not probe
//! it prematurely, and then runs a program such as mkfs. Such a lock must not exclude the child. Two writers are still
//! excluded, because a device is opened exclusively.

use std::fs;

use crate::host::FileId;

/// Maximum number of ancestors that are examined.
const GENERATIONS_MAX: usize = 64;

/// Returns whether an ancestor of this process holds a lock of this file.
pub(crate) fn is_held(file: FileId) -> bool {
    let Ok(locks) = fs::read_to_string("/proc/locks") else { return false };
    let holders: Vec<u32> = locks.lines().filter_map(|line| holder(line, file)).collect();
    !holders.is_empty() && ancestors().any(|process| holders.contains(&process))
}

/// Returns the owner of a lock from a line like `1: FLOCK  ADVISORY  WRITE 4711 00:05:345 0 EOF`, if it applies to this
/// file.
fn holder(line: &str, file: FileId) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    let is_whole = words.next() == Some("FLOCK");
    let process = words.nth(2)?.parse().ok()?;
    let mut place = words.next()?.split(':');
    let mut hexadecimal = || u32::from_str_radix(place.next()?, 16).ok();
    let (major, minor) = (hexadecimal()?, hexadecimal()?);
    let inode: u64 = place.next()?.parse().ok()?;
    let of_file = (rustix::fs::major(file.dev), rustix::fs::minor(file.dev), file.ino);
    (is_whole && (major, minor, inode) == of_file).then_some(process)
}

/// Returns the ancestors of this process, nearest first.
fn ancestors() -> impl Iterator<Item = u32> {
    std::iter::successors(Some(std::os::unix::process::parent_id()), |process| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        parent.trim().parse().ok().filter(|parent| *parent > 0)
    })
    .take(GENERATIONS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_locks_are_distinguished() {
        let file = FileId { dev: rustix::fs::makedev(0, 5), ino: 345 };
        assert_eq!(holder("1: FLOCK  ADVISORY  WRITE 4711 00:05:345 0 EOF", file), Some(4711));
        for other in [
            "1: POSIX  ADVISORY  WRITE 4711 00:05:345 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 4711 00:06:345 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 4711 00:05:346 0 EOF",
            "1: -> FLOCK  ADVISORY  WRITE 4711 00:05:345 0 EOF",
            "",
        ] {
            assert_eq!(holder(other, file), None, "{other}");
        }
        assert!(!is_held(file));
    }
}
