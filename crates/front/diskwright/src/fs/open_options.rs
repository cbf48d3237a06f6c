//! Opening files.

use vfs::path::{LastLink, split_last};
use vfs::{Error as FsError, FileType, Ino};

use super::file::AccessMode;
use super::{AsImagePath, File, Image};
use crate::image::shared::{Held, Owner, PathContext};
use crate::{Error, Result};

/// Default permissions of a new file.
const PERMISSIONS: u32 = 0o644;

/// Maximum number of attempts when a name is created and removed concurrently.
const TRIES: u32 = 100;

/// Options for opening a file, with the meaning of `std::fs::OpenOptions`.
///
/// ```
/// # use std::sync::Arc;
/// # use diskwright::fs::{Ext4Options, File, Image, MemoryDevice, OpenOptions};
/// use std::io::Write;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let image = Image::format(Arc::new(MemoryDevice::new(8 << 20)), Ext4Options::new())?;
/// let mut log = OpenOptions::new().append(true).create(true).mode(0o600).open(&image, "log")?;
/// log.write_all(b"one more line\n")?;
/// # drop(log);
/// # image.close()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    reads: bool,
    writes: bool,
    appends: bool,
    truncates: bool,
    creates: bool,
    creates_new: bool,
    mode: u32,
    owner: Option<Owner>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// Creates options that allow nothing.
    #[must_use]
    pub fn new() -> Self {
        let (reads, writes, appends) = (false, false, false);
        let (truncates, creates, creates_new) = (false, false, false);
        let (mode, owner) = (PERMISSIONS, None);
        Self { reads, writes, appends, truncates, creates, creates_new, mode, owner }
    }

    /// Sets read access.
    #[must_use]
    pub fn read(mut self, reads: bool) -> Self {
        self.reads = reads;
        self
    }

    /// Sets write access.
    #[must_use]
    pub fn write(mut self, writes: bool) -> Self {
        self.writes = writes;
        self
    }

    /// Sets append mode: every write goes to the current end of the file.
    #[must_use]
    pub fn append(mut self, appends: bool) -> Self {
        self.appends = appends;
        self
    }

    /// Sets whether the file is truncated to 0 bytes on opening.
    #[must_use]
    pub fn truncate(mut self, truncates: bool) -> Self {
        self.truncates = truncates;
        self
    }

    /// Sets whether a missing file is created.
    #[must_use]
    pub fn create(mut self, creates: bool) -> Self {
        self.creates = creates;
        self
    }

    /// Sets whether the file is created and must not exist.
    #[must_use]
    pub fn create_new(mut self, creates_new: bool) -> Self {
        self.creates_new = creates_new;
        self
    }

    /// Sets the permissions of a new file. An image has no umask.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Sets user and group of a new file, instead of those of the image's options. Files created in a set-group-ID
    /// directory inherit its group.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owner = Some((uid, gid));
        self
    }

    /// Creates a file with these contents or replaces the contents of an existing file. A new file gets its name when
    /// it is complete, so a failure leaves none. An existing file keeps its inode. Of the options, only permissions and
    /// owner matter.
    ///
    /// # Errors
    /// If the path is not a regular file, or the image is full or read-only.
    pub fn write_whole(
        &self,
        image: &Image,
        path: impl AsImagePath,
        contents: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (path, contents) = (path.as_image_path(), contents.as_ref());
        let is_new = image
            .shared
            .names(path, |names| self.make_whole(&names.owned_by(self.owner), path, contents))?;
        if is_new {
            return Ok(());
        }
        let existing = Self::new().write(true).truncate(true).open(image, path)?;
        existing.write_at(contents, 0).map(|_| ())
    }

    /// Creates a file with these contents. Returns false if it exists.
    fn make_whole(
        &self,
        names: &PathContext<'_>,
        path: &[u8],
        contents: &[u8],
    ) -> vfs::Result<bool> {
        match names.paths.resolve(path, LastLink::Follow) {
            Ok(_) => return Ok(false),
            Err(FsError::NotFound) => {}
            Err(error) => return Err(error),
        }
        let (dir, name) = names.paths.parent_of_target(path)?;
        vfs::names::check_name(&name)?;
        let new = names.new_inode(dir, self.mode, FileType::Regular)?;
        let ino = names.fs.create_unlinked(dir, &new)?;
        let made = names.fs.write(ino, 0, contents, Some(names.now));
        let made = made.and_then(|()| names.fs.link(ino, dir, &name, Some(names.now)));
        // Without a name, closing frees it.
        let closed = names.fs.close(ino);
        made.and(closed).map(|()| true)
    }

    /// Opens a file. A symbolic link at the end of the path is followed, except with [`Self::create_new`].
    ///
    /// # Errors
    /// If the options contradict each other, the file does not exist (or exists with `create_new`), or the file type
    /// cannot be opened. Directories can be opened for reading only. Also if write access is requested and the image is
    /// read-only.
    pub fn open(&self, image: &Image, path: impl AsImagePath) -> Result<File> {
        let path = path.as_image_path();
        let writes = self.writes || self.appends;
        let access = AccessMode { reads: self.reads, writes, appends: self.appends };
        self.check(writes).map_err(|error| Error::file(path, error))?;
        let held = image.shared.names(path, |names| {
            let names = names.owned_by(self.owner);
            let (ino, is_new) = self.find(&names, path)?;
            if !is_new {
                self.prepare(&names, ino, writes, image.is_writable())?;
            }
            Held::new(&image.shared, names.fs, ino)
        })?;
        Ok(File::new(held, access, path))
    }

    /// Rejects combinations that `std` rejects.
    fn check(&self, writes: bool) -> vfs::Result<()> {
        let problem = match () {
            () if !self.reads && !writes => "open a file for reading, writing or appending",
            () if !writes && (self.truncates || self.creates || self.creates_new) => {
                "creating or truncating a file requires write access"
            }
            () if self.appends && self.truncates && !self.creates_new => {
                "append and truncate exclude each other"
            }
            () if self.mode > 0o7777 => "permissions must be below 0o10000",
            () => return Ok(()),
        };
        Err(FsError::Invalid(problem))
    }

    /// Returns the inode of the path and whether it was created.
    fn find(&self, names: &PathContext<'_>, path: &[u8]) -> vfs::Result<(Ino, bool)> {
        if !self.creates && !self.creates_new {
            return Ok((names.paths.resolve(path, LastLink::Follow)?, false));
        }
        if path.ends_with(b"/") {
            names.paths.parent(path)?;
            return Err(FsError::IsADirectory);
        }
        if self.creates_new {
            let Some((parent, name)) = split_last(path) else { return Err(FsError::Exists) };
            let dir = names.paths.resolve(parent, LastLink::Follow)?;
            return self.make(names, dir, name).map(|ino| (ino, true));
        }
        for _ in 0..TRIES {
            match names.paths.resolve(path, LastLink::Follow) {
                Err(FsError::NotFound) => {}
                found => return found.map(|ino| (ino, false)),
            }
            let (dir, name) = names.paths.parent_of_target(path)?;
            match self.make(names, dir, &name) {
                Err(FsError::Exists) => {}
                made => return made.map(|ino| (ino, true)),
            }
        }
        Err(FsError::Exists)
    }

    fn make(&self, names: &PathContext<'_>, dir: Ino, name: &[u8]) -> vfs::Result<Ino> {
        let new = names.new_inode(dir, self.mode, FileType::Regular)?;
        names.fs.create(dir, name, &new)
    }

    /// Checks that an existing file can be opened with these options, and truncates it if requested.
    fn prepare(
        &self,
        names: &PathContext<'_>,
        ino: Ino,
        writes: bool,
        is_writable: bool,
    ) -> vfs::Result<()> {
        match names.fs.attributes(ino)?.file_type {
            FileType::Regular => {}
            FileType::Directory if !writes => {}
            FileType::Directory => return Err(FsError::IsADirectory),
            _ => return Err(FsError::Invalid("only regular files and directories can be opened")),
        }
        if writes && !is_writable {
            return Err(FsError::ReadOnly("the image was opened for reading"));
        }
        if self.truncates { names.fs.truncate(ino, 0, Some(names.now)) } else { Ok(()) }
    }
}

impl File {
    /// Opens a file for reading. A directory can be opened too, to read its metadata.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn open(image: &Image, path: impl AsImagePath) -> Result<Self> {
        OpenOptions::new().read(true).open(image, path)
    }

    /// Opens a file for writing. It is created if missing and truncated otherwise.
    ///
    /// # Errors
    /// If it is a directory, or the image is read-only.
    pub fn create(image: &Image, path: impl AsImagePath) -> Result<Self> {
        OpenOptions::new().write(true).create(true).truncate(true).open(image, path)
    }

    /// Creates a file and opens it for reading and writing.
    ///
    /// # Errors
    /// If the name exists, or the image is read-only.
    pub fn create_new(image: &Image, path: impl AsImagePath) -> Result<Self> {
        OpenOptions::new().read(true).write(true).create_new(true).open(image, path)
    }

    /// Returns new [`OpenOptions`].
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }
}
