//! Digests of the files of an image by path, to count how many are unchanged after damage.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use vfs::{FileSystem, FileType, Ino};

/// Read size in bytes.
const READ_BYTES: usize = 1 << 20;
/// Maximum number of bytes read of a file, because sparse files can claim much more.
const READ_BYTES_MAX: u64 = 16 << 20;

/// Paths and extended attributes of an image, each with a digest. Unreadable files are left out, because they did not
/// survive.
#[derive(Clone, Debug, Default)]
pub struct Survivors {
    /// Digest of type, size and contents, keyed by path.
    files: BTreeMap<Vec<u8>, u32>,
    /// Digest of the value, keyed by path and name.
    xattrs: BTreeMap<(Vec<u8>, Vec<u8>), u32>,
}

impl Survivors {
    /// Reads everything in a file system.
    pub fn of(fs: &dyn FileSystem) -> Self {
        let mut all = Self::default();
        let mut met = HashSet::new();
        let mut pending = vec![(Vec::new(), fs.root())];
        while let Some((path, ino)) = pending.pop() {
            let Ok(attributes) = fs.attributes(ino) else { continue };
            if attributes.file_type == FileType::Directory && met.insert(ino.0) {
                let _ = fs.for_each_entry(ino, &mut |entry| {
                    if !matches!(entry.name, b"." | b"..") {
                        pending.push(([&path, entry.name].join(&b'/'), entry.ino));
                    }
                    ControlFlow::Continue(())
                });
            }
            all.add_xattrs(fs, &path, ino);
            let size = attributes.size;
            if let Some(digest) = contents(fs, ino, attributes.file_type, size) {
                let head = [attributes.file_type as u8];
                all.files.insert(path, crc32c::crc32c_append(digest, &head));
            }
        }
        all
    }

    fn add_xattrs(&mut self, fs: &dyn FileSystem, path: &[u8], ino: Ino) {
        let mut names = Vec::new();
        let _ = fs.list_xattrs(ino, &mut |name| names.push(name.to_vec()));
        for name in names {
            if let Ok(value) = fs.get_xattr(ino, &name) {
                self.xattrs.insert((path.to_vec(), name), crc32c::crc32c(&value));
            }
        }
    }

    /// Returns the number of paths with the same digest in `after`.
    pub fn files_kept<'s>(&'s self, after: &Self) -> HashSet<&'s [u8]> {
        let is_kept = |(path, digest): &(&Vec<u8>, &u32)| after.files.get(*path) == Some(digest);
        self.files.iter().filter(is_kept).map(|(path, _)| &path[..]).collect()
    }

    /// Returns the number of extended attributes with the same value in `after`.
    pub fn xattrs_kept(&self, after: &Self) -> usize {
        let is_kept = |(key, digest): &(_, &u32)| after.xattrs.get(*key) == Some(*digest);
        self.xattrs.iter().filter(is_kept).count()
    }

    /// Returns the number of paths.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns true if the image has no readable file.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

/// Returns a digest of a file's contents; `None` if it is unreadable.
fn contents(fs: &dyn FileSystem, ino: Ino, file_type: FileType, size: u64) -> Option<u32> {
    match file_type {
        FileType::Symlink => fs.readlink(ino).ok().map(|target| crc32c::crc32c(&target)),
        FileType::Regular => {
            let mut digest = crc32c::crc32c(&size.to_le_bytes());
            let mut bytes = vec![0; READ_BYTES];
            let end = size.min(READ_BYTES_MAX);
            for at in (0..end).step_by(READ_BYTES) {
                let len = (end - at).min(READ_BYTES as u64) as usize;
                fs.read(ino, at, &mut bytes[..len]).ok()?;
                digest = crc32c::crc32c_append(digest, &bytes[..len]);
            }
            Some(digest)
        }
        _ => Some(0),
    }
}
