//! The mount that contains a directory.

use std::fs;
use std::path::Path;

use diskwright::mounts::MountEntry;

/// Returns the mount that contains a directory, or `None` if unknown.
pub(super) fn mount_of(directory: &Path) -> Option<MountEntry> {
    let directory = fs::canonicalize(directory).ok()?;
    above(MountEntry::all().ok()?, &directory)
}

/// Returns whether the files of a mount exist only in memory.
pub(super) fn is_cache(mount: &MountEntry) -> bool {
    matches!(mount.fs_type.as_str(), "tmpfs" | "ramfs" | "devtmpfs")
}

/// Returns the mount with the longest mount point above `directory`. Later mounts at the same point hide earlier ones.
fn above(mounts: Vec<MountEntry>, directory: &Path) -> Option<MountEntry> {
    let above = mounts.into_iter().filter(|mount| directory.starts_with(&mount.point));
    // `max_by_key` returns the last of equal elements.
    above.max_by_key(|mount| mount.point.components().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_mount_point_counts_and_of_equals_the_last() {
        let mount = |point: &str, fs_type: &str| MountEntry {
            source: "/dev/vda".into(),
            point: point.into(),
            fs_type: fs_type.into(),
            options: "rw".into(),
            way: None,
        };
        let mounts = || {
            let (root, data) = (mount("/", "ext4"), mount("/data", "xfs"));
            vec![root, mount("/proc", "proc"), data, mount("/data", "btrfs")]
        };
        let fs_type = |directory: &str| above(mounts(), Path::new(directory)).unwrap().fs_type;
        assert_eq!(fs_type("/home/somebody"), "ext4");
        assert_eq!(fs_type("/proc/1"), "proc");
        assert_eq!(fs_type("/data/x"), "btrfs");
        assert_eq!(fs_type("/database"), "ext4");
        assert_eq!(above(Vec::new(), Path::new("/data")), None);
    }

    #[test]
    fn this_machine_has_a_mount_for_every_directory() {
        assert_eq!(mount_of(Path::new("/proc/self")).unwrap().fs_type, "proc");
        assert_eq!(mount_of(Path::new("/no such directory")), None);
    }
}
