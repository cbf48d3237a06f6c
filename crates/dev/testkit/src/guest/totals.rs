//! Totals of directories whose projects have limits, as the guest's kernel shows them.

use std::collections::BTreeMap;

use vfs::{FileSystem, Ino};

/// Makes directories with projects in the working directory. The limits are set by the callers.
pub const MAKE_PROJECTS: &str = r#"
mkdir hard soft none other
for d in hard soft none other; do
    id=$(case $d in hard) echo 42;; soft) echo 43;; none) echo 44;; other) echo 45;; esac)
    xfs_io -r -c "chproj $id" -c 'chattr +P' $d
    dd if=/dev/zero of=$d/f bs=1M count=3 2>/dev/null
done
mkdir hard/sub
xfs_io -r -c 'chattr -P' other
sync
"#;

/// Shows the totals of these directories: blocks, free ones, inodes, free ones.
pub const SHOW_TOTALS: &str = r#"
for d in hard hard/sub soft none other hard/f; do echo $d $(stat -f -c '%b %f %c %d' $d); done
"#;

/// Parses the output of [`SHOW_TOTALS`].
///
/// # Panics
/// If a directory is missing.
pub fn parse_totals(output: &str) -> BTreeMap<String, [u64; 4]> {
    let parse = |line: &str| {
        let (name, numbers) = line.split_once(' ')?;
        let numbers: Option<Vec<u64>> = numbers.split(' ').map(|text| text.parse().ok()).collect();
        Some((name.to_owned(), numbers?.try_into().ok()?))
    };
    let found: BTreeMap<_, _> = output.lines().filter_map(parse).collect();
    assert_eq!(found.len(), 6, "{output}");
    found
}

/// Returns the inode of a path.
///
/// # Panics
/// If it does not exist.
pub fn inode_at(fs: &dyn FileSystem, path: &str) -> Ino {
    path.split('/').fold(fs.root(), |dir, name| fs.lookup(dir, name.as_bytes()).unwrap())
}

/// Returns the totals of a path in the order of [`SHOW_TOTALS`].
///
/// # Panics
/// If it does not exist.
pub fn totals_of(fs: &dyn FileSystem, path: &str) -> [u64; 4] {
    let found = fs.statfs_of(inode_at(fs, path)).unwrap();
    [found.blocks, found.blocks_free, found.inodes, found.inodes_free]
}
