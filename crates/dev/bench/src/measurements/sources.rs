//! Source directories of images.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Contents of a source directory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Census {
    /// Number of entries of all types below the directory.
    pub(crate) entries: u64,
    /// Number of inodes of those entries; less than the entries if there are hard links.
    pub(crate) inodes: u64,
    /// Allocated bytes of the entries.
    pub(crate) bytes: u64,
}

/// Creates a directory of empty files.
pub(crate) fn empty_files(directory: &Path, count: u64) -> io::Result<Census> {
    fs::create_dir(directory)?;
    for number in 0..count {
        File::create(directory.join(format!("file-{number:07}")))?;
    }
    Ok(Census { entries: count, inodes: count, bytes: 0 })
}

/// Counts the contents of a directory. This also warms the kernel's inode cache.
pub(crate) fn census(root: &Path) -> io::Result<Census> {
    let mut census = Census::default();
    let mut linked = HashSet::new();
    let mut pending: Vec<PathBuf> = vec![root.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            census.entries += 1;
            let is_known = !metadata.is_dir()
                && metadata.nlink() > 1
                && !linked.insert((metadata.dev(), metadata.ino()));
            if !is_known {
                census.inodes += 1;
                census.bytes += metadata.blocks() * 512;
            }
            if metadata.is_dir() {
                pending.push(entry.path());
            }
        }
    }
    Ok(census)
}
