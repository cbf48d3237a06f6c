//! Listing directories.

use std::borrow::Cow;
use std::sync::Arc;

use vfs::path::{Entries, LastLink, Named, NamedRef, Order};
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

/// An entry of a directory, until the next one is asked for.
#[derive(Clone, Copy)]
pub struct DirEntryRef<'a> {
    directory: &'a Directory,
    entry: NamedRef<'a>,
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

impl ReadDir {
    /// The next entry, without the copies that [`Iterator::next`] makes of its name and of what it belongs to: for who
    /// goes through many and keeps few.
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
    /// As those of the iterator: if the directory cannot be read, or has a name that none can hold. What follows is given
    /// after it.
    pub fn next_ref(&mut self) -> Option<Result<DirEntryRef<'_>>> {
        let directory = &*self.directory;
        let Directory { held, path } = directory;
        let next = held.with(path, |fs| self.entries.next_ref(fs).transpose());
        next.map(|entry| entry.map(|entry| DirEntryRef { directory, entry })).transpose()
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
        self.directory.file_type(self.entry.file_type, &self.entry.name)
    }

    /// What is known of it now. A symbolic link is not followed.
    ///
    /// # Errors
    /// If the name is gone meanwhile.
    pub fn metadata(&self) -> Result<Metadata> {
        self.directory.metadata(&self.entry.name)
    }
}

impl DirEntryRef<'_> {
    /// Its name.
    pub fn file_name(&self) -> &[u8] {
        self.entry.name
    }

    /// The inode number.
    pub fn ino(&self) -> Ino {
        self.entry.ino
    }

    /// What it is, as [`DirEntry::file_type`].
    ///
    /// # Errors
    /// As there.
    pub fn file_type(&self) -> Result<FileType> {
        self.directory.file_type(self.entry.file_type, self.entry.name)
    }

    /// What is known of it now, as [`DirEntry::metadata`].
    ///
    /// # Errors
    /// As there.
    pub fn metadata(&self) -> Result<Metadata> {
        self.directory.metadata(self.entry.name)
    }
}

impl Directory {
    /// The type of an entry: as the directory says, or else as the inode does.
    fn file_type(&self, told: Option<FileType>, name: &[u8]) -> Result<FileType> {
        match told {
            Some(file_type) => Ok(file_type),
            None => self.metadata(name).map(|metadata| metadata.file_type()),
        }
    }

    /// What is known now of what an entry names.
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
