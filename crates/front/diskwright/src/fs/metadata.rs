//! File metadata.

use std::time::SystemTime;

use vfs::{Attributes, DeviceNumber, FileType, Ino, SetAttributes, Timestamp};

use crate::{Error, Result};

/// Metadata of a file: type, size, owner, permissions and times.
///
/// ```
/// # use std::sync::Arc;
/// # use diskwright::fs::{Ext4Options, Image, MemoryDevice};
/// # fn main() -> diskwright::Result<()> {
/// # let image = Image::format(Arc::new(MemoryDevice::new(8 << 20)), Ext4Options::new())?;
/// image.write("notes", "some text")?;
/// let metadata = image.metadata("notes")?;
/// assert!(metadata.is_file());
/// assert_eq!((metadata.len(), metadata.permissions(), metadata.nlink()), (9, 0o644, 1));
/// # image.close() }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata(Attributes);

impl Metadata {
    pub(super) fn new(attributes: Attributes) -> Self {
        Self(attributes)
    }

    /// Returns the file type.
    pub fn file_type(&self) -> FileType {
        self.0.file_type
    }

    /// Returns whether this is a regular file.
    pub fn is_file(&self) -> bool {
        self.0.file_type.is_file()
    }

    /// Returns whether this is a directory.
    pub fn is_dir(&self) -> bool {
        self.0.file_type.is_dir()
    }

    /// Returns whether this is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.0.file_type.is_symlink()
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Returns whether the size is 0.
    pub fn is_empty(&self) -> bool {
        self.0.size == 0
    }

    /// Returns the permission bits with set-user-ID, set-group-ID and sticky, at most `0o7777`.
    pub fn permissions(&self) -> u32 {
        self.0.permissions.into()
    }

    /// Returns the type and permission bits in the format of `st_mode` of `stat(2)`.
    pub fn mode(&self) -> u32 {
        (self.0.file_type.mode_bits() | self.0.permissions).into()
    }

    /// Returns the user ID of the owner.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Returns the group ID.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// Returns the number of names.
    pub fn nlink(&self) -> u64 {
        self.0.links.into()
    }

    /// Returns the inode number.
    pub fn ino(&self) -> Ino {
        self.0.ino
    }

    /// Returns the allocated space in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.0.blocks_512
    }

    /// Returns the device number of a device file.
    pub fn rdev(&self) -> DeviceNumber {
        self.0.device
    }

    /// Returns the access time. This library does not update it.
    pub fn atime(&self) -> Timestamp {
        self.0.atime
    }

    /// Returns the time of the last change of the contents.
    pub fn mtime(&self) -> Timestamp {
        self.0.mtime
    }

    /// Returns the time of the last change of contents or attributes.
    pub fn ctime(&self) -> Timestamp {
        self.0.ctime
    }

    /// Returns the creation time, or `None` if the image does not store it.
    pub fn crtime(&self) -> Option<Timestamp> {
        self.0.crtime
    }

    /// Returns [`Self::atime`] as a [`SystemTime`].
    ///
    /// # Errors
    /// If the host cannot represent the time.
    pub fn accessed(&self) -> Result<SystemTime> {
        self.of_host(Some(self.0.atime))
    }

    /// Returns [`Self::mtime`] as a [`SystemTime`].
    ///
    /// # Errors
    /// Same as [`Self::accessed`].
    pub fn modified(&self) -> Result<SystemTime> {
        self.of_host(Some(self.0.mtime))
    }

    /// Returns [`Self::crtime`] as a [`SystemTime`].
    ///
    /// # Errors
    /// Same as [`Self::accessed`], and if the image does not store it.
    pub fn created(&self) -> Result<SystemTime> {
        self.of_host(self.0.crtime)
    }

    /// Returns all attributes of the file system.
    pub fn attributes(&self) -> &Attributes {
        &self.0
    }

    fn of_host(&self, time: Option<Timestamp>) -> Result<SystemTime> {
        let Some(time) = time else {
            let problem = "this image does not store creation times";
            return Err(Error::Usage(problem.into()));
        };
        time.to_system_time().ok_or_else(|| {
            Error::Usage(format!(
                "the time {} s after 1970 is out of range on this host; use its number",
                time.sec
            ))
        })
    }
}

/// Times to set; other times are unchanged. Accepts [`SystemTime`] and [`Timestamp`].
///
/// ```
/// # use std::sync::Arc;
/// # use diskwright::fs::{Ext4Options, FileTimes, Image, MemoryDevice};
/// use std::time::SystemTime;
///
/// # fn main() -> diskwright::Result<()> {
/// # let image = Image::format(Arc::new(MemoryDevice::new(8 << 20)), Ext4Options::new())?;
/// # image.write("notes", "")?;
/// image.set_times("notes", FileTimes::new().set_modified(SystemTime::UNIX_EPOCH))?;
/// assert_eq!(image.metadata("notes")?.mtime().sec, 0);
/// # image.close() }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileTimes {
    accessed: Option<Timestamp>,
    modified: Option<Timestamp>,
    created: Option<Timestamp>,
}

impl FileTimes {
    /// Creates an empty set of times.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the access time.
    #[must_use]
    pub fn set_accessed(mut self, time: impl Into<Timestamp>) -> Self {
        self.accessed = Some(time.into());
        self
    }

    /// Sets the modification time.
    #[must_use]
    pub fn set_modified(mut self, time: impl Into<Timestamp>) -> Self {
        self.modified = Some(time.into());
        self
    }

    /// Sets the creation time. It is ignored if the image does not store it.
    #[must_use]
    pub fn set_created(mut self, time: impl Into<Timestamp>) -> Self {
        self.created = Some(time.into());
        self
    }

    pub(super) fn change(self, now: Timestamp) -> SetAttributes {
        let Self { accessed: atime, modified: mtime, created: crtime } = self;
        SetAttributes { atime, mtime, crtime, ctime: Some(now), ..SetAttributes::default() }
    }
}
