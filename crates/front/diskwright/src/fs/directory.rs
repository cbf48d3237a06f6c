//! Listing directories.

use std::borrow::Cow;
use std::sync::Arc;

use vfs::path::{Entries, LastLink, NamedEntry, NamedRef, Order};
use vfs::{Error as FsError, FileType, Ino};

use super::path::join;
use super::{AsImagePath, Image, Metadata};
use crate::image::shared::Held;
use crate::{Error, Result};

/// Directory of a listing.
struct ListedDirectory {
    held: Held,
    path: Box<[u8]>,
}

/// Entries of a directory without `.` and `..`, in on-disk order. No lock is held between two entries.
///
/// Entries created or removed during the listing may or may not be included.
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
    directory: Arc<ListedDirectory>,
    entries: Entries,
}

/// Directory entry.
#[derive(Clone)]
pub struct DirEntry {
    directory: Arc<ListedDirectory>,
    entry: NamedEntry,
}

/// Directory entry that borrows from the listing until the next call.
#[derive(Clone, Copy)]
pub struct DirEntryRef<'a> {
    directory: &'a ListedDirectory,
    entry: NamedRef<'a>,
}

impl Image {
    /// Returns the entries of a directory.
    ///
    /// # Errors
    /// If it does not exist or is not a directory.
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
        Ok(ReadDir { directory: Arc::new(ListedDirectory { held, path: path.into() }), entries })
    }
}

impl ReadDir {
    /// Returns the next entry without copying its name and path, unlike [`Iterator::next`]. This is faster for callers
    /// that keep few entries.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use diskwright::fs::{Ext4Options, Image, MemoryDevice};
    /// # fn main() -> diskwright::Result<()> {
    /// # let image = Image::format(Arc::new(MemoryDevice::new(8 << 20)), Ext4Options::new())?;
    /// image.write("motd", "hello\n")?;
    /// let mut entries = image.read_dir("/")?;
    /// let mut bytes = 0;
    /// while let Some(entry) = entries.next_ref() {
    ///     bytes += entry?.file_name().len();
    /// }
    /// # assert_eq!(bytes, "motd".len() + "lost+found".len());
    /// # image.close() }
    /// ```
    ///
    /// # Errors
    /// Same as the iterator: if the directory cannot be read or contains an invalid name. The listing can be continued
    /// after an error.
    pub fn next_ref(&mut self) -> Option<Result<DirEntryRef<'_>>> {
        let directory = &*self.directory;
        let ListedDirectory { held, path } = directory;
        let next = held.with(path, |fs| self.entries.next_ref(fs).transpose());
        next.map(|entry| entry.map(|entry| DirEntryRef { directory, entry })).transpose()
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let ListedDirectory { held, path } = &*self.directory;
        let next = held.with(path, |fs| self.entries.next(fs).transpose());
        let directory = Arc::clone(&self.directory);
        next.map(|entry| entry.map(|entry| DirEntry { directory, entry })).transpose()
    }
}

impl DirEntry {
    /// Returns the name.
    pub fn file_name(&self) -> &[u8] {
        &self.entry.name
    }

    /// Returns the name as text, with replacement characters for invalid UTF-8.
    pub fn file_name_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.entry.name)
    }

    /// Returns the directory path as passed to [`Image::read_dir`], joined with the name.
    pub fn path(&self) -> Vec<u8> {
        join(&self.directory.path, &self.entry.name)
    }

    /// Returns the inode number.
    pub fn ino(&self) -> Ino {
        self.entry.ino
    }

    /// Returns the file type from the directory entry or, if missing there, from the inode.
    ///
    /// # Errors
    /// If the inode must be read, same as [`Self::metadata`].
    pub fn file_type(&self) -> Result<FileType> {
        self.directory.file_type(self.entry.file_type, &self.entry.name)
    }

    /// Returns the current metadata. A symbolic link is not followed.
    ///
    /// # Errors
    /// If the name was removed meanwhile.
    pub fn metadata(&self) -> Result<Metadata> {
        self.directory.metadata(&self.entry.name)
    }
}

impl DirEntryRef<'_> {
    /// Returns the name.
    pub fn file_name(&self) -> &[u8] {
        self.entry.name
    }

    /// Returns the inode number.
    pub fn ino(&self) -> Ino {
        self.entry.ino
    }

    /// Returns the file type, like [`DirEntry::file_type`].
    ///
    /// # Errors
    /// Same as [`DirEntry::file_type`].
    pub fn file_type(&self) -> Result<FileType> {
        self.directory.file_type(self.entry.file_type, self.entry.name)
    }

    /// Returns the current metadata, like [`DirEntry::metadata`].
    ///
    /// # Errors
    /// Same as [`DirEntry::metadata`].
    pub fn metadata(&self) -> Result<Metadata> {
        self.directory.metadata(self.entry.name)
    }
}

impl ListedDirectory {
    /// Returns the file type from the directory entry or, if missing there, from the inode.
    fn file_type(&self, told: Option<FileType>, name: &[u8]) -> Result<FileType> {
        match told {
            Some(file_type) => Ok(file_type),
            None => self.metadata(name).map(|metadata| metadata.file_type()),
        }
    }

    /// Returns the current metadata of the inode that an entry names.
    fn metadata(&self, name: &[u8]) -> Result<Metadata> {
        let held = &self.held;
        let found = held.shared().names(name, |names| {
            let ino = names.fs.lookup(held.ino(), name)?;
            names.fs.attributes(ino).map(Metadata::new)
        });
        found.map_err(|error| match error {
            Error::File { source, .. } => Error::file(&join(&self.path, name), source),
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

impl std::fmt::Debug for DirEntryRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = join(&self.directory.path, self.entry.name);
        f.debug_tuple("DirEntryRef").field(&crate::text::escaped(&path).to_string()).finish()
    }
}

impl std::fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = crate::text::escaped(&self.path()).to_string();
        f.debug_tuple("DirEntry").field(&path).finish()
    }
}
