//! Paths over the inode-level interface, in the manner of `std::fs`.
//!
//! Paths are bytes with `/` between components and always start at the image's root, with or
//! without a leading `/`. Symbolic links are followed inside the image only, absolute targets
//! from its root: no path can lead outside. `..` goes to the parent that the path itself went
//! through, and stays in the root at the root.

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

use listing::Listing;

pub use circle::Circle;
pub use entries::Entries;
pub use parents::{PathsOf, paths_of};
pub use root::check_root;
pub use several::first_paths;
pub use walk::{DirectoryGuard, Visit, Walk, WalkError, WalkSteps, Walked};

/// Most symbolic links followed for one path, as Linux has it (`MAXSYMLINKS`).
pub const SYMLINKS_MAX: usize = 40;

/// Longest path that is resolved, symbolic link targets put in included, in bytes.
const PATH_BYTES_MAX: usize = 1 << 20;

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// The path stands for what the link leads to.
    Follow,
    /// The path stands for the link.
    Keep,
}

/// The order of a directory's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By the bytes of the names. Holds one directory's names in memory.
    Sorted,
    /// As the directory lists them. Holds a bounded number of entries.
    Physical,
}

/// A file system seen through paths.
#[derive(Clone, Copy)]
pub struct Paths<'a> {
    fs: &'a dyn FileSystem,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name: 1 to 255 bytes without `/` and NUL, neither `.` nor `..`.
    pub name: Vec<u8>,
    /// The inode it names.
    pub ino: Ino,
    /// The type, where the directory itself says so.
    pub file_type: Option<FileType>,
}

/// An entry of a directory, as long as nothing is done with what it was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedRef<'a> {
    /// Its name, as [`Named::name`].
    pub name: &'a [u8],
    /// The inode it names.
    pub ino: Ino,
    /// The type, where the directory itself says so.
    pub file_type: Option<FileType>,
}

impl NamedRef<'_> {
    /// The same with a name of its own.
    pub fn to_named(&self) -> Named {
        Named { name: self.name.to_vec(), ino: self.ino, file_type: self.file_type }
    }
}

/// A directory on the way of a path, and the name that was taken in it.
type Step = (Ino, Vec<u8>);

impl<'a> Paths<'a> {
    /// Paths of this file system.
    pub fn new(fs: &'a dyn FileSystem) -> Self {
        Self { fs }
    }

    /// The file system.
    pub fn file_system(&self) -> &'a dyn FileSystem {
        self.fs
    }

    /// The inode a path stands for. A path that ends in `/` follows the last link and must be a
    /// directory.
    pub fn resolve(&self, path: &[u8], last: LastLink) -> Result<Ino> {
        self.follow(path, last).map(|(ino, _)| ino)
    }

    /// The path of what a path stands for, from the root, without symbolic links, `.` and `..`.
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

    /// The inode a path stands for, and each directory on the way there with the name that was taken in it.
    fn follow(&self, path: &[u8], last: LastLink) -> Result<(Ino, Vec<Step>)> {
        // Components still to go, the next one last.
        let mut pending: Vec<Vec<u8>> = components(path);
        let mut parents: Vec<Step> = Vec::new();
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
            let found = self.fs.lookup(current, &name)?;
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

    /// The attributes of what a path stands for.
    pub fn metadata(&self, path: &[u8]) -> Result<Attributes> {
        self.fs.attributes(self.resolve(path, LastLink::Follow)?)
    }

    /// The attributes of the file at a path, which may be a symbolic link.
    pub fn symlink_metadata(&self, path: &[u8]) -> Result<Attributes> {
        self.fs.attributes(self.resolve(path, LastLink::Keep)?)
    }

    /// The target of the symbolic link at a path.
    pub fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.fs.readlink(self.resolve(path, LastLink::Keep)?)
    }

    /// The whole contents of a regular file of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// `FileTooLarge` if it is longer: a few bytes of an image can claim a file of terabytes.
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

    /// Reads a regular file from its beginning and hands it over in pieces, holes as zeros, until
    /// the callback breaks.
    pub fn read_inode(
        &self,
        ino: Ino,
        each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let attributes = self.fs.attributes(ino)?;
        match attributes.file_type {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::Invalid("this is not a regular file")),
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

    /// The entries of the directory at a path, without `.` and `..`, sorted by name.
    pub fn read_dir(&self, path: &[u8]) -> Result<Vec<Named>> {
        self.read_dir_inode(self.resolve(path, LastLink::Follow)?)
    }

    /// The entries of a directory, without `.` and `..`, sorted by name.
    ///
    /// # Errors
    /// `Corrupt` also for a name that no directory can hold, and for one that is there twice.
    pub fn read_dir_inode(&self, dir: Ino) -> Result<Vec<Named>> {
        let mut listing = Listing::new(Order::Sorted);
        listing.fill(self.fs, dir)?;
        let mut all = Vec::with_capacity(listing.len());
        while let Some(entry) = listing.next() {
            all.push(entry.sound(dir)?.to_named());
        }
        Ok(all)
    }

    /// Makes a directory and those above it that are missing; returns its inode. What is there
    /// already stays as it is.
    ///
    /// # Errors
    /// `NotADirectory` if something else is in the way.
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

    /// Makes the regular file at a path, or empties the one that is there, and fills it; returns
    /// its inode. `new` is for a file that was not there.
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

/// Parent path and last component of a path; `None` if it has no component that is a name.
pub fn split_last(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = path.iter().rposition(|&b| b != b'/')? + 1;
    let start = path[..end].iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    let name = &path[start..end];
    (name != b"." && name != b"..").then_some((&path[..start], name))
}

/// The components of a path, the first one last; `.` and empty ones left out.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let parts = path.rsplit(|&b| b == b'/').filter(|part| !part.is_empty() && *part != b".");
    parts.map(<[u8]>::to_vec).collect()
}
