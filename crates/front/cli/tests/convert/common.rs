//! Contents of an image as this program shows them, which is more than a mount shows.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use ::diskwright::Image;
use vfs::{FileAttributes, FileType, InodeFlags, Timestamp};

use crate::program::diskwright;

/// Flags that describe the storage of an inode.
const OF_STORAGE: InodeFlags = InodeFlags::EXTENTS
    .union(InodeFlags::INDEXED)
    .union(InodeFlags::INLINE_DATA)
    .union(InodeFlags::PREALLOCATED)
    .union(InodeFlags::HASATTR);

/// Properties of a file that do not depend on the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConvertedFile {
    pub(crate) file_type: FileType,
    pub(crate) permissions: u16,
    owner: (u32, u32),
    size: u64,
    device: (u32, u32),
    links: u32,
    times: [Timestamp; 3],
    pub(crate) crtime: Option<Timestamp>,
    pub(crate) attributes: FileAttributes,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Returns all files of an image except `lost+found`, by path.
pub(crate) fn files(image: &Path) -> BTreeMap<Vec<u8>, ConvertedFile> {
    let image = Image::open(image).unwrap();
    let fs = image.file_system().unwrap();
    let mut files = BTreeMap::new();
    let mut pending = vec![(Vec::new(), fs.root())];
    while let Some((path, ino)) = pending.pop() {
        let found = fs.attributes(ino).unwrap();
        let is_directory = found.file_type == FileType::Directory;
        let mut attributes = fs.file_attributes(ino).unwrap();
        attributes.flags -= OF_STORAGE;
        attributes.extents = 0;
        let mut names = Vec::new();
        fs.list_xattrs(ino, &mut |name| names.push(name.to_vec())).unwrap();
        let value = |name: Vec<u8>| {
            let value = fs.get_xattr(ino, &name).unwrap();
            (name, value)
        };
        let xattrs = names.into_iter().map(value).collect();
        let file = ConvertedFile {
            file_type: found.file_type,
            permissions: found.permissions,
            owner: (found.uid, found.gid),
            size: if is_directory { 0 } else { found.size },
            device: (found.device.major, found.device.minor),
            // The root of ext4 contains lost+found.
            links: if path.is_empty() { 0 } else { found.links },
            times: [found.atime, found.mtime, found.ctime],
            crtime: found.crtime,
            attributes,
            xattrs,
        };
        if is_directory {
            for entry in fs.paths().read_dir_inode(ino).unwrap() {
                let below = [&path[..], b"/", &entry.name].concat();
                if below != b"/lost+found" {
                    pending.push((below, entry.ino));
                }
            }
        }
        files.insert(path, file);
    }
    files
}

/// Returns `diskwright convert` with options separated by spaces.
pub(crate) fn convert(from: &Path, to: &Path, options: &str) -> Command {
    let mut command = diskwright();
    command.arg("convert").args(options.split_whitespace()).arg(from).arg(to);
    command
}
