//! What is known of a file without reading it.

use std::time::SystemTime;

use vfs::{Attributes, DeviceNumber, FileType, Ino, SetAttributes, Timestamp};

use crate::{Error, Result};

/// What is known of a file: type, size, owner, permissions and times.
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

    /// What it is.
    pub fn file_type(&self) -> FileType {
        self.0.file_type
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.0.file_type.is_file()
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.0.file_type.is_dir()
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.0.file_type.is_symlink()
    }

    /// Size in bytes.
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Whether the size is 0.
    pub fn is_empty(&self) -> bool {
        self.0.size == 0
    }

    /// Permission bits, with set-user-id, set-group-id and sticky: below `0o10000`.
    pub fn permissions(&self) -> u32 {
        self.0.permissions.into()
    }

    /// Type and permission bits, as `st_mode` of `stat(2)` has them.
    pub fn mode(&self) -> u32 {
        (self.0.file_type.mode_bits() | self.0.permissions).into()
    }

    /// Owner.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// Number of names.
    pub fn nlink(&self) -> u64 {
        self.0.links.into()
    }

    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.0.ino
    }

    /// Space that it takes, in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.0.blocks_512
    }

    /// The number of a device.
    pub fn rdev(&self) -> DeviceNumber {
        self.0.device
    }

    /// When it was last read, as far as somebody keeps that. This library does not.
    pub fn atime(&self) -> Timestamp {
        self.0.atime
    }

    /// When its contents last changed.
    pub fn mtime(&self) -> Timestamp {
        self.0.mtime
    }

    /// When anything of it last changed.
    pub fn ctime(&self) -> Timestamp {
        self.0.ctime
    }

    /// When it was made; `None` if the image does not keep that.
    pub fn crtime(&self) -> Option<Timestamp> {
        self.0.crtime
    }

    /// [`Self::atime`] as a time of the host.
    ///
    /// # Errors
    /// If the host has no such time.
    pub fn accessed(&self) -> Result<SystemTime> {
        self.of_host(Some(self.0.atime))
    }

    /// [`Self::mtime`] as a time of the host.
    ///
    /// # Errors
    /// As [`Self::accessed`].
    pub fn modified(&self) -> Result<SystemTime> {
        self.of_host(Some(self.0.mtime))
    }

    /// [`Self::crtime`] as a time of the host.
    ///
    /// # Errors
    /// As [`Self::accessed`], and if the image does not keep it.
    pub fn created(&self) -> Result<SystemTime> {
        self.of_host(self.0.crtime)
    }

    /// All that the file system says.
    pub fn attributes(&self) -> &Attributes {
        &self.0
    }

    fn of_host(&self, time: Option<Timestamp>) -> Result<SystemTime> {
        let Some(time) = time else {
            let problem = "this image does not keep when files were made";
            return Err(Error::Usage(problem.into()));
        };
        time.to_system_time().ok_or_else(|| {
            Error::Usage(format!("the host has no time {} s after 1970: use its number", time.sec))
        })
    }
}

/// Times to set; others stay. Times of the host ([`SystemTime`]) are taken, and [`Timestamp`]s.
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
    /// No times.
    pub fn new() -> Self {
        Self::default()
    }

    /// When it was last read.
    #[must_use]
    pub fn set_accessed(mut self, time: impl Into<Timestamp>) -> Self {
        self.accessed = Some(time.into());
        self
    }

    /// When its contents last changed.
    #[must_use]
    pub fn set_modified(mut self, time: impl Into<Timestamp>) -> Self {
        self.modified = Some(time.into());
        self
    }

    /// When it was made; nothing is set where the image does not keep that.
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
