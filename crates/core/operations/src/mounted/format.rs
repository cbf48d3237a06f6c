//! Traits that a format adds to the shared implementation of `vfs::FileSystem`.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use disk::BlockDevice;
use vfs::survey::{ImageGeometry, Sink};
use vfs::{
    Attributes, Cookie, DirEntry, Error, FileAttributes, FileAttributesChange, FilePart, Ino,
    MappedExtent, Result, StatFs, Timestamp,
};

use crate::RunOperations;
use crate::data::{ChangeFiles, ReadFiles};
use crate::deferred_create::DeferCreates;
use crate::names::{Directories, LinkEffects, MakeInodes};
use crate::profile::{ListingClock, ListingProfile};

/// Opening and closing images. [`Mounted`](super::Mounted) has the same functions for callers.
pub trait OpenImages: Sized {
    /// Options for opening an image.
    type Options;

    /// Opens an image for reading. Its journal or log is replayed in memory, so the image is not modified.
    ///
    /// # Errors
    /// `Unsupported` for features that this build cannot read, and for a journal or log on another device; `Corrupt` if
    /// the superblock, the groups or the log are invalid.
    fn open(device: Arc<dyn BlockDevice>, options: &Self::Options) -> Result<Self>;

    /// Opens an image for changes in place: first replays its journal or log, and completes what a crash left
    /// unfinished.
    ///
    /// # Errors
    /// As [`Self::open`], and `Unsupported` for features that this build cannot maintain. Nothing was written in that
    /// case.
    fn open_writable(device: Arc<dyn BlockDevice>, options: &Self::Options) -> Result<Self>;

    /// Opens an image that mkfs has just created, to fill it. It is valid only after [`Self::finish`].
    ///
    /// # Errors
    /// As [`Self::open_writable`].
    fn open_in_progress(device: Arc<dyn BlockDevice>, cache_bytes: usize) -> Result<Self>;

    /// Frees open inodes without names, writes everything and marks the image as clean.
    ///
    /// # Errors
    /// If the device fails, or if an inode to be freed is damaged. The image is then left as after a crash.
    fn close(self) -> Result<()>;

    /// Finishes an image in progress: frees all inodes without names, and writes all metadata, then the superblock,
    /// with a new UUID if one is given.
    ///
    /// # Errors
    /// If the device fails. The image is then incomplete.
    fn finish(&self, uuid: Option<[u8; 16]>) -> Result<()>;
}

/// Reading inodes: attributes, contents and link targets.
pub trait ReadInodes: ReadFiles {
    /// Returns the attributes of an inode.
    ///
    /// # Errors
    /// `Corrupt` if they are invalid.
    fn attributes_of_inode(&self, inode: &Self::Inode) -> Result<Attributes>;

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// Returns the errors of [`vfs::FileSystem::readlink`].
    fn link_target(&self, inode: &Self::Inode) -> Result<Vec<u8>>;

    /// Reads from a regular file, as [`vfs::FileSystem::read`] specifies.
    ///
    /// # Errors
    /// Returns the errors of that method.
    fn read_contents(&self, file: &Self::Inode, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Reports the location of bytes, as [`vfs::FileSystem::read_in_place`] specifies.
    ///
    /// # Errors
    /// Returns the errors of that method.
    fn contents_in_place(
        &self,
        file: &Self::Inode,
        offset: u64,
        len: u64,
        take: &mut dyn FnMut(&[FilePart<'_>]),
    ) -> Result<bool>;

    /// Reports extents, as [`vfs::FileSystem::extent_map`] specifies.
    ///
    /// # Errors
    /// Returns the errors of that method.
    fn extents_of(
        &self,
        file: &Self::Inode,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(MappedExtent) -> ControlFlow<()>,
    ) -> Result<()>;
}

/// Looking up names and listing directories.
pub trait ReadDirectories: Directories {
    /// Returns the inode of a name.
    ///
    /// # Errors
    /// Returns the errors of [`vfs::FileSystem::lookup`].
    fn find_name(&self, dir: &Self::Inode, name: &[u8]) -> Result<Ino>;

    /// Lists a directory, as [`vfs::FileSystem::readdir`] specifies.
    ///
    /// # Errors
    /// Returns the errors of that method.
    fn list(
        &self,
        dir: &Self::Inode,
        from: Cookie,
        clock: ListingClock<'_>,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Reports all entries in the order that is fastest to read, as [`vfs::FileSystem::for_each_entry`] specifies.
    ///
    /// # Errors
    /// Returns the errors of that method.
    fn list_unordered(
        &self,
        dir: &Self::Inode,
        clock: ListingClock<'_>,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.list(dir, Cookie::default(), clock, each)
    }

    /// Returns the error for a name that is missing, as [`vfs::FileSystem::missing_name`] specifies.
    fn missing_name(&self, _dir: &Self::Inode) -> Error {
        Error::NotFound
    }

    /// Returns whether at least one directory may fold names.
    fn may_fold_names(&self) -> bool;

    /// Returns the folded form of a name, as [`vfs::FileSystem::folded_name`] specifies. Called only if names may fold.
    ///
    /// # Errors
    /// Returns the errors of that method.
    fn fold_name<'n>(&self, dir: Ino, name: &'n [u8]) -> Result<Cow<'n, [u8]>>;

    /// Returns the profile of listings.
    fn listings(&self) -> &ListingProfile;
}

/// Extended attributes and inode flags.
pub trait KeepAttributes: Directories {
    /// Returns the value of an extended attribute.
    ///
    /// # Errors
    /// Returns the errors of [`vfs::FileSystem::get_xattr`].
    fn xattr(&self, inode: &Self::Inode, name: &[u8]) -> Result<Vec<u8>>;

    /// Reports the names of all extended attributes.
    ///
    /// # Errors
    /// Returns the errors of [`vfs::FileSystem::list_xattrs`].
    fn xattr_names(&self, inode: &Self::Inode, each: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Creates or replaces an extended attribute.
    ///
    /// # Errors
    /// Returns the errors of [`vfs::FileSystem::set_xattr`].
    fn store_xattr(&self, ino: Ino, name: &[u8], value: &[u8]) -> Result<()>;

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// Returns the errors of [`vfs::FileSystem::remove_xattr`].
    fn drop_xattr(&self, ino: Ino, name: &[u8]) -> Result<()>;

    /// Reports parent pointers, as [`vfs::FileSystem::parents`] specifies.
    ///
    /// # Errors
    /// Returns the errors of that method.
    fn parent_pointers(&self, _ino: Ino, _each: &mut dyn FnMut(Ino, &[u8])) -> Result<bool> {
        Ok(false)
    }

    /// Returns the flags, project and allocation hints of an inode.
    ///
    /// # Errors
    /// Returns the errors of [`vfs::FileSystem::file_attributes`].
    fn stored_file_attributes(&self, ino: Ino) -> Result<FileAttributes>;

    /// Changes flags, project and allocation hints.
    ///
    /// # Errors
    /// Returns the errors of [`vfs::FileSystem::set_file_attributes`].
    fn store_file_attributes(&self, ino: Ino, change: &FileAttributesChange) -> Result<()>;
}

/// Sharing blocks between files. A format without it uses the defaults.
pub trait ShareContents: ChangeFiles {
    /// Returns whether files can share blocks.
    fn may_clone(&self) -> bool {
        false
    }

    /// Shares blocks, as [`vfs::FileSystem::clone_range`] specifies.
    ///
    /// # Errors
    /// Returns the errors of that method.
    fn clone_contents(
        &self,
        _from: (Ino, u64),
        _to: (Ino, u64),
        _len: u64,
        _time: Option<Timestamp>,
    ) -> Result<()> {
        Err(no_sharing())
    }

    /// Exchanges blocks, as [`vfs::FileSystem::exchange_range`] specifies.
    ///
    /// # Errors
    /// Returns the errors of that method.
    fn exchange_contents(
        &self,
        _one: (Ino, u64),
        _two: (Ino, u64),
        _len: u64,
        _time: Option<Timestamp>,
    ) -> Result<()> {
        Err(Error::unsupported("exchanging blocks of files", "copy the bytes, or use XFS"))
    }

    /// Shares blocks with the same bytes, as [`vfs::FileSystem::dedupe_range`] specifies.
    ///
    /// # Errors
    /// Returns the errors of that method.
    fn dedupe_contents(&self, _from: (Ino, u64), _to: (Ino, u64), _len: u64) -> Result<bool> {
        Err(no_sharing())
    }
}

/// Returns the error of a file system whose files cannot share blocks.
fn no_sharing() -> Error {
    Error::unsupported("sharing blocks between files", "copy the bytes, or use XFS with reflink")
}

/// The whole file system: totals, label, free space and layout.
pub trait WholeVolume: RunOperations {
    /// Returns the totals of space and inodes. Deferred files do not count.
    ///
    /// # Errors
    /// Read errors.
    fn totals(&self) -> Result<StatFs>;

    /// Returns the totals for an inode, as [`vfs::FileSystem::statfs_of`] specifies. Deferred files do not count.
    ///
    /// # Errors
    /// Read errors.
    fn totals_of(&self, ino: Ino) -> Result<StatFs>;

    /// Returns the label.
    ///
    /// # Errors
    /// Read errors.
    fn stored_label(&self) -> Result<Vec<u8>>;

    /// Sets the label, as [`vfs::FileSystem::set_label`] specifies.
    ///
    /// # Errors
    /// Returns the errors of that method.
    fn store_label(&self, label: &[u8]) -> Result<()>;

    /// Discards free space, as [`vfs::FileSystem::trim`] specifies.
    ///
    /// # Errors
    /// Returns the errors of that method.
    fn discard_free(&self, range: Range<u64>, len_min: u64) -> Result<u64>;

    /// Returns the size and structure of the image, as [`vfs::survey::TellsLayout::shape`] specifies.
    ///
    /// # Errors
    /// Returns the errors of that method.
    fn shape_of_image(&self) -> Result<ImageGeometry>;

    /// Reports all blocks, as [`vfs::survey::TellsLayout::tell_layout`] specifies.
    fn survey(&self, sink: &mut dyn Sink);
}

/// A format that can be mounted: the sum of the traits that the shared implementation needs.
pub trait MountFormat:
    OpenImages
    + ReadInodes
    + ReadDirectories
    + KeepAttributes
    + WholeVolume
    + MakeInodes
    + LinkEffects
    + ShareContents
    + DeferCreates
    + Send
    + Sync
{
}

impl<F> MountFormat for F where
    F: OpenImages
        + ReadInodes
        + ReadDirectories
        + KeepAttributes
        + WholeVolume
        + MakeInodes
        + LinkEffects
        + ShareContents
        + DeferCreates
        + Send
        + Sync
{
}
