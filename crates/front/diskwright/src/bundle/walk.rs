//! Walks a tree breadth first and reads all its metadata, in the order in which programs use it.

use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;

use vfs::{FileSystem, FileType, Ino};

/// Reads the metadata of all files. Errors are ignored: a reader gets them from the image.
pub(super) fn walk(fs: &dyn FileSystem) {
    let mut known = HashSet::from([fs.root()]);
    let mut waiting = VecDeque::from([fs.root()]);
    visit(fs, fs.root());
    while let Some(dir) = waiting.pop_front() {
        for ino in entries(fs, dir) {
            // A file with several names is visited once.
            if known.insert(ino) && visit(fs, ino) == Some(FileType::Directory) {
                waiting.push_back(ino);
            }
        }
    }
}

/// Returns the inodes of a directory, in the order of its listing.
fn entries(fs: &dyn FileSystem, dir: Ino) -> Vec<Ino> {
    let mut found = Vec::new();
    let _ = fs.for_each_entry(dir, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            found.push(entry.ino);
        }
        ControlFlow::Continue(())
    });
    found
}

/// Reads the inode, the attributes and the block map of a file.
fn visit(fs: &dyn FileSystem, ino: Ino) -> Option<FileType> {
    let attributes = fs.attributes(ino).ok()?;
    let _ = fs.list_xattrs(ino, &mut |_| {});
    if attributes.file_type == FileType::Regular && attributes.size > 0 {
        let _ = fs.extent_map(ino, 0, attributes.size, &mut |_| ControlFlow::Continue(()));
    }
    Some(attributes.file_type)
}
