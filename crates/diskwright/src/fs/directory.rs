//! Listing directories.

use std::borrow::Cow;
use std::sync::Arc;

use vfs::path::{Entries, LastLink, Named, Order};
use vfs::{Error as FsError, FileType, Ino};

use super::path::join;
use super::shared::Held;
use super::{AsImagePath, Image, Metadata};
use crate::{Error, Result};

/// The directory that is listed.
struct Directory {
    held: Held,
    path: Box<[u8]>,
}

/// The entries of a directory, without `.` and `..`, in the directory's own order. No lock is held between two of
/// them.
///
/// Entries that come or go at the same time may be among them or not.
///
/// ```
/// # use std::sync::Arc;
/// # use diskwright::fs::{Ext4Options, Image, MemoryDevice};
/// # fn main() -> diskwright::Result<()> {
/// # let image = Image::format(Arc::new(MemoryDevice::new(8 << 20)), Ext4Options::new())?;
/// image.create_dir("etc")?;
/// image.write("etc/motd", "hello\n")?;
/// for entry in image.read_dir("/etc")? {
///     let entry = entry?;
///     println!("{} has {} bytes", entry.file_name_lossy(), entry.metadata()?.len());
///     assert_eq!(entry.path(), b"/etc/motd");
/// }
/// # image.close() }
/// ```
pub struct ReadDir {
    directory: Arc<Directory>,
    entries: Entries,
}

/// An entry of a directory.
#[derive(Clone)]
pub struct DirEntry {
    directory: Arc<Directory>,
    entry: Named,
}

impl Image {
    /// The entries of a directory.
    ///
    /// # Errors
    /// If it is not there, or no directory.
    pub fn read_dir(&self, path: impl AsImagePath) -> Result<ReadDir> {
        let path = path.as_image_path();
        let held = self.shared.names(path, |names| {
            let dir = names.paths.resolve(path, LastLink::Follow)?;
            if names.fs.attributes(dir)?.file_type != FileType::Directory {
                return Err(FsError::NotADirectory);
            }
            Held::new(&self.shared, names.fs, dir)
        })?;
        let entries = Entries::new(held.ino(), Order::Physical);
        Ok(ReadDir { directory: Arc::new(Directory { held, path: path.into() }), entries })
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let Directory { held, path } = &*self.directory;
        let next = held.with(path, |fs| self.entries.next(fs).transpose());
        let directory = Arc::clone(&self.directory);
        next.map(|entry| entry.map(|entry| DirEntry { directory, entry })).transpose()
    }
}

impl DirEntry {
    /// Its name.
    pub fn file_name(&self) -> &[u8] {
        &self.entry.name
    }

    /// Its name as text, with replacement characters for what is none.
    pub fn file_name_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.entry.name)
    }

    /// The path of the directory, as it was given, and the name.
    pub fn path(&self) -> Vec<u8> {
        join(&self.directory.path, &self.entry.name)
    }

    /// The inode number.
    pub fn ino(&self) -> Ino {
        self.entry.ino
    }

    /// What it is: as the directory says, or else as the inode does.
    ///
    /// # Errors
    /// If the inode has to be asked, as [`Self::metadata`].
    pub fn file_type(&self) -> Result<FileType> {
        match self.entry.file_type {
            Some(file_type) => Ok(file_type),
            None => self.metadata().map(|metadata| metadata.file_type()),
        }
    }

    /// What is known of it now. A symbolic link is not followed.
    ///
    /// # Errors
    /// If the name is gone meanwhile.
    pub fn metadata(&self) -> Result<Metadata> {
        let held = &self.directory.held;
        let found = held.shared().names(&self.entry.name, |names| {
            let ino = names.fs.lookup(held.ino(), &self.entry.name)?;
            names.fs.attributes(ino).map(Metadata::new)
        });
        found.map_err(|error| match error {
            Error::File { source, .. } => Error::file(&self.path(), source),
            other => other,
        })
    }
}

impl std::fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = crate::text::escaped(&self.directory.path).to_string();
        f.debug_tuple("ReadDir").field(&path).finish()
    }
}

impl std::fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = crate::text::escaped(&self.path()).to_string();
        f.debug_tuple("DirEntry").field(&path).finish()
    }
}
