//! Paths over the inode-level interface, modelled on `std::fs`.
//!
//! Paths are bytes with `/` between components. They start at the image's root, with or without a leading `/`. Symbolic
//! links are resolved inside the image, absolute targets from its root, so no path leads outside. `..` is the parent in
//! the path itself; at the root it stays at the root.

mod change;
mod circle;
mod entries;
mod listing;
mod parents;
mod root;
mod several;
mod walk;

use std::ops::ControlFlow;

use crate::{Attributes, Error, FileSystem, FileType, Ino, NAME_LEN_MAX, NewInode, Result};

use listing::NameBuffer;

pub use circle::Circle;
pub use entries::Entries;
pub use parents::{PathsOf, paths_of};
pub use root::check_root;
pub use several::first_paths;
pub use walk::{DirectoryGuard, Visit, Walk, WalkError, WalkSteps, Walked};

/// Maximum number of symbolic links followed for one path, as in Linux (`MAXSYMLINKS`).
pub const SYMLINKS_MAX: usize = 40;

/// Maximum length of a path in bytes, including the targets of its symbolic links.
const PATH_BYTES_MAX: usize = 1 << 20;

/// Read size in bytes.
const READ_BYTES: usize = 1 << 20;

/// Treatment of a symbolic link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// Resolves to the target of the link.
    Follow,
    /// Resolves to the link itself.
    Keep,
}

/// The order of a directory's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Sorted by the bytes of the names. Keeps all names of one directory in memory.
    Sorted,
    /// The directory's own order. Keeps a bounded number of entries in memory.
    Physical,
}

/// A file system accessed by paths.
#[derive(Clone, Copy)]
pub struct Paths<'a> {
    fs: &'a dyn FileSystem,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedEntry {
    /// Name: 1 to 255 bytes without `/` and NUL, neither `.` nor `..`.
    pub name: Vec<u8>,
    /// Inode of the entry.
    pub ino: Ino,
    /// File type, if the directory stores it.
    pub file_type: Option<FileType>,
}

/// An entry of a directory that borrows its name from the listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedRef<'a> {
    /// Name, as [`NamedEntry::name`].
    pub name: &'a [u8],
    /// Inode of the entry.
    pub ino: Ino,
    /// File type, if the directory stores it.
    pub file_type: Option<FileType>,
}

impl NamedRef<'_> {
    /// Returns an entry with an owned name.
    pub(crate) fn to_named(self) -> NamedEntry {
        NamedEntry { name: self.name.to_vec(), ino: self.ino, file_type: self.file_type }
    }
}

/// A directory on a path, and the name that the path takes in it.
type PathStep = (Ino, Vec<u8>);

impl<'a> Paths<'a> {
    /// Creates a path API over `fs`.
    pub fn new(fs: &'a dyn FileSystem) -> Self {
        Self { fs }
    }

    /// Returns the file system.
    pub fn file_system(&self) -> &'a dyn FileSystem {
        self.fs
    }

    /// Resolves a path to an inode. A path that ends in `/` follows the last link and must be a directory.
    pub fn resolve(&self, path: &[u8], last: LastLink) -> Result<Ino> {
        self.follow(path, last).map(|(ino, _)| ino)
    }

    /// Returns the absolute path of the resolved file, without symbolic links, `.` and `..`.
    pub fn canonicalize(&self, path: &[u8]) -> Result<Vec<u8>> {
        let (_, parents) = self.follow(path, LastLink::Follow)?;
        let mut canonical = Vec::with_capacity(path.len() + 1);
        for (_, name) in &parents {
            canonical.push(b'/');
            canonical.extend_from_slice(name);
        }
        if canonical.is_empty() {
            canonical.push(b'/');
        }
        Ok(canonical)
    }

    /// Resolves a path. Returns its inode, and each directory on the way with the name taken in it.
    fn follow(&self, path: &[u8], last: LastLink) -> Result<(Ino, Vec<PathStep>)> {
        // Remaining components, the next one last.
        let mut pending: Vec<Vec<u8>> = components(path);
        let mut parents: Vec<PathStep> = Vec::new();
        let mut current = self.fs.root();
        let (mut links, mut bytes) = (0, path.len());
        let must_be_directory = path.ends_with(b"/") || path.ends_with(b"/.");
        while let Some(name) = pending.pop() {
            if name == b".." {
                current = parents.pop().map_or(current, |(parent, _)| parent);
                continue;
            }
            if name.len() > NAME_LEN_MAX {
                return Err(Error::NameTooLong);
            }
            let found = self.fs.lookup(current, &name).map_err(|error| match error {
                Error::NotFound => self.fs.missing_name(current),
                error => error,
            })?;
            let is_last = pending.is_empty() && !must_be_directory;
            let keep = is_last && last == LastLink::Keep;
            let file_type = self.fs.attributes(found)?.file_type;
            if file_type == FileType::Symlink && !keep {
                let target = self.fs.readlink(found)?;
                links += 1;
                bytes += target.len();
                if links > SYMLINKS_MAX || bytes > PATH_BYTES_MAX {
                    return Err(Error::SymlinkLoop);
                }
                if target.starts_with(b"/") {
                    current = self.fs.root();
                    parents.clear();
                }
                pending.extend(components(&target));
            } else {
                if !is_last && file_type != FileType::Directory {
                    return Err(Error::NotADirectory);
                }
                parents.push((std::mem::replace(&mut current, found), name));
            }
        }
        Ok((current, parents))
    }

    /// Returns the attributes of the file at a path. Follows symbolic links.
    pub fn metadata(&self, path: &[u8]) -> Result<Attributes> {
        self.fs.attributes(self.resolve(path, LastLink::Follow)?)
    }

    /// Returns the attributes of the file at a path. Does not follow a symbolic link at the end.
    pub fn symlink_metadata(&self, path: &[u8]) -> Result<Attributes> {
        self.fs.attributes(self.resolve(path, LastLink::Keep)?)
    }

    /// Returns the target of the symbolic link at a path.
    pub fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.fs.readlink(self.resolve(path, LastLink::Keep)?)
    }

    /// Reads a regular file of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// `FileTooLarge` if it is longer: a small image can contain a sparse file of terabytes.
    pub fn read(&self, path: &[u8], bytes_max: u64) -> Result<Vec<u8>> {
        let mut contents = Vec::new();
        let ino = self.resolve(path, LastLink::Follow)?;
        let attributes = self.fs.attributes(ino)?;
        if attributes.file_type == FileType::Regular && attributes.size > bytes_max {
            return Err(Error::FileTooLarge);
        }
        self.read_inode(ino, &mut |bytes| {
            contents.extend_from_slice(bytes);
            ControlFlow::Continue(())
        })?;
        Ok(contents)
    }

    /// Reads a regular file from its beginning and passes it to the callback in pieces, holes as zeros, until the
    /// callback breaks.
    pub fn read_inode(
        &self,
        ino: Ino,
        each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let attributes = self.fs.attributes(ino)?;
        match attributes.file_type {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::Invalid("not a regular file")),
        }
        let len = attributes.size.min(READ_BYTES as u64) as usize;
        let mut buffer = vec![0; len];
        let mut offset = 0;
        while offset < attributes.size {
            let want = (attributes.size - offset).min(len as u64) as usize;
            let count = self.fs.read(ino, offset, &mut buffer[..want])?;
            if count == 0 || each(&buffer[..count]).is_break() {
                break;
            }
            offset += count as u64;
        }
        Ok(())
    }

    /// Returns the entries of the directory at a path, without `.` and `..`, sorted by name.
    pub fn read_dir(&self, path: &[u8]) -> Result<Vec<NamedEntry>> {
        self.read_dir_inode(self.resolve(path, LastLink::Follow)?)
    }

    /// Returns the entries of a directory, without `.` and `..`, sorted by name.
    ///
    /// # Errors
    /// `Corrupt` also for invalid and for duplicate names.
    pub fn read_dir_inode(&self, dir: Ino) -> Result<Vec<NamedEntry>> {
        let mut listing = NameBuffer::new(Order::Sorted);
        listing.fill(self.fs, dir)?;
        let mut all = Vec::with_capacity(listing.len());
        while let Some(entry) = listing.next() {
            all.push(entry.sound(dir)?.to_named());
        }
        Ok(all)
    }

    /// Creates a directory and its missing parents; returns its inode. Existing directories do not change.
    ///
    /// # Errors
    /// `NotADirectory` if a component exists and is not a directory.
    pub fn create_dir_all(&self, path: &[u8], new: &NewInode) -> Result<Ino> {
        let mut made = Vec::new();
        let mut current = self.fs.root();
        for name in path.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            made.extend_from_slice(b"/");
            made.extend_from_slice(name);
            current = match self.resolve(&made, LastLink::Follow) {
                Ok(ino) => ino,
                Err(Error::NotFound) => self.fs.mkdir(current, name, new)?,
                Err(error) => return Err(error),
            };
            if self.fs.attributes(current)?.file_type != FileType::Directory {
                return Err(Error::NotADirectory);
            }
        }
        Ok(current)
    }

    /// Creates or truncates the regular file at a path and writes its contents; returns its inode. `new` applies only
    /// if the file is created.
    pub fn write(&self, path: &[u8], contents: &[u8], new: &NewInode) -> Result<Ino> {
        let ino = match self.resolve(path, LastLink::Follow) {
            Ok(ino) => {
                match self.fs.attributes(ino)?.file_type {
                    FileType::Regular => self.fs.truncate(ino, 0, None)?,
                    FileType::Directory => return Err(Error::IsADirectory),
                    _ => return Err(Error::Exists),
                }
                ino
            }
            Err(Error::NotFound) => {
                let (parent, name) = split_last(path).ok_or(Error::IsADirectory)?;
                self.fs.create(self.resolve(parent, LastLink::Follow)?, name, new)?
            }
            Err(error) => return Err(error),
        };
        self.fs.write(ino, 0, contents, None)?;
        Ok(ino)
    }
}

/// Splits a path into its parent and last component. Returns `None` if it has no component that is a name.
pub fn split_last(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = path.iter().rposition(|&b| b != b'/')? + 1;
    let start = path[..end].iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    let name = &path[start..end];
    (name != b"." && name != b"..").then_some((&path[..start], name))
}

/// Returns the components of a path in reverse order, without `.` and empty ones.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let parts = path.rsplit(|&b| b == b'/').filter(|part| !part.is_empty() && *part != b".");
    parts.map(<[u8]>::to_vec).collect()
}
