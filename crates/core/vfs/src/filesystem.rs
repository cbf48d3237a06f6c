//! The inode-level interface that every format implements and every front end uses.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};

use crate::{
    AllocateMode, Attributes, Cookie, DirEntry, Error, FileAttributes, FileAttributesChange,
    FilePart, Ino, MappedExtent, NewInode, RenameMode, Result, SetAttributes, SpecialFile, StatFs,
    Timestamp,
};

/// A mounted file system. Every method may be called from any thread.
///
/// An operation is atomic: if it returns an error, it leaves no trace. Long operations on contents ([`Self::write`],
/// [`Self::allocate`], [`Self::truncate`], [`Self::clone_range`]) are exceptions: they run as several atomic steps from
/// front to back, and earlier steps stay if a later one fails.
///
/// Names are 1 to 255 bytes without `/` and NUL. `.` and `..` can be looked up, but not created or removed. Methods do
/// not check permissions, which is the caller's policy. They obey flags that forbid changes ([`crate::Protection`]) and
/// return `NotPermitted`.
///
/// Callbacks run while the inode is locked and must not change it. If other threads make changes at the same time, a
/// callback must not call the file system at all: a thread that waits for the exclusive lock of the inode blocks new
/// readers.
pub trait FileSystem: Send + Sync {
    /// Returns the root directory.
    fn root(&self) -> Ino;

    /// Returns whether different names may lead to the same entry in at least one directory (case-insensitive
    /// directories).
    fn folds_names(&self) -> bool {
        false
    }

    /// Returns the folded form of `name` in `dir`. Two names lead to the same entry exactly if their folded forms are
    /// equal. A directory that does not fold names returns `name` itself.
    ///
    /// # Errors
    /// `NotFound` or `NotADirectory` if `dir` is not a directory.
    fn folded_name<'n>(&self, _dir: Ino, name: &'n [u8]) -> Result<Cow<'n, [u8]>> {
        Ok(Cow::Borrowed(name))
    }

    /// Returns whether two names lead to the same entry of `dir`.
    ///
    /// # Errors
    /// Returns the errors of [`Self::folded_name`].
    fn is_same_name(&self, dir: Ino, a: &[u8], b: &[u8]) -> Result<bool> {
        Ok(a == b || self.folds_names() && self.folded_name(dir, a)? == self.folded_name(dir, b)?)
    }

    /// Returns whether reads have a high latency, so that large reads should be prefetched by several threads.
    fn is_far(&self) -> bool {
        false
    }

    /// Prefetches bytes of the device at an [`ExtentPlace::Device`](crate::ExtentPlace::Device), if [`Self::is_far`].
    fn read_ahead(&self, _place: u64, _len: u64) {}

    /// Returns the totals of space and inodes.
    fn statfs(&self) -> Result<StatFs>;

    /// Returns the totals as statfs(2) for a file or directory. A directory whose new files inherit a project with limits
    /// is like a file system of that size.
    fn statfs_of(&self, _ino: Ino) -> Result<StatFs> {
        self.statfs()
    }

    /// Returns the inode of the entry `name` in `dir`. `NotFound` if there is no such entry.
    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino>;

    /// Returns the error for a name that a user gave and [`Self::lookup`] did not find in `dir`. It is `NotFound`, or
    /// `Encrypted` if the names of the directory are not available without a key.
    fn missing_name(&self, _dir: Ino) -> Error {
        Error::NotFound
    }

    /// Returns the attributes of an inode. `NotFound` if it is not in use.
    fn attributes(&self, ino: Ino) -> Result<Attributes>;

    /// Changes attributes. Sets `ctime` only if `change` contains it.
    fn set_attributes(&self, ino: Ino, change: &SetAttributes) -> Result<()>;

    /// Creates an empty regular file.
    fn create(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino>;

    /// Creates an empty directory.
    fn mkdir(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino>;

    /// Creates a device, FIFO or socket.
    fn mknod(&self, dir: Ino, name: &[u8], file: SpecialFile, new: &NewInode) -> Result<Ino>;

    /// Creates a symbolic link to `target`.
    fn symlink(&self, dir: Ino, name: &[u8], target: &[u8], new: &NewInode) -> Result<Ino>;

    /// Returns the target of a symbolic link.
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>>;

    /// Creates a regular file without a name, in the vicinity of `dir`, and opens it (see [`Self::open`]). The file is
    /// freed if it is closed before [`Self::link`] gives it a name, and after a crash.
    fn create_unlinked(&self, dir: Ino, new: &NewInode) -> Result<Ino>;

    /// Adds a name to the non-directory `ino`. `time` becomes the `ctime` of the inode and the `mtime` and `ctime` of
    /// the directory; `None` leaves them unchanged.
    fn link(&self, ino: Ino, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()>;

    /// Replaces the inode of the entry `name` with the non-directory `ino`. The former inode loses a link, as in
    /// [`Self::unlink`]. The change is atomic, also after a crash. Does nothing if the entry leads to `ino` already.
    /// `NotFound` if there is no such entry. `time` as in [`Self::link`].
    fn link_over(&self, ino: Ino, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()>;

    /// Removes a name of a non-directory. With the last name the inode is freed, or once it is closed if it is open.
    /// `time` as in [`Self::link`].
    fn unlink(&self, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()>;

    /// Removes an empty directory. `time` as in [`Self::link`].
    fn rmdir(&self, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()>;

    /// Moves the entry `from` (directory and name) to `to`. The former inode of `to` is removed as by `unlink` or
    /// `rmdir`, unless `mode` requests something else. Does nothing if both names lead to the same inode.
    ///
    /// In a directory that folds names, an entry that is replaced keeps its spelling. If both names lead to the same
    /// entry, [`RenameMode::Replace`] gives it the spelling of `to`. `time` becomes the `ctime` of the inodes moved or
    /// removed and the `mtime` and `ctime` of the directories. `Invalid` if a directory would move into itself or below
    /// itself.
    fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        time: Option<Timestamp>,
    ) -> Result<()>;

    /// Moves an entry as [`Self::rename`] does and atomically leaves a whiteout under the old name. A whiteout is a
    /// character device 0:0 with the owner, permissions and times of `whiteout` (`parent_time` is ignored); an overlay
    /// file system uses it to hide a name of a lower layer. Does nothing if both names lead to the same inode.
    /// `Invalid` for [`RenameMode::Exchange`], which leaves no free name.
    fn rename_with_whiteout(
        &self,
        _from: (Ino, &[u8]),
        _to: (Ino, &[u8]),
        _mode: RenameMode,
        _whiteout: &NewInode,
        _time: Option<Timestamp>,
    ) -> Result<()> {
        Err(Error::unsupported("whiteouts", "this file system reserves none"))
    }

    /// Adds a reference to an inode, so that it is not freed with its last name. `NotFound` if it is not in use, or
    /// belongs to the file system itself (for example the journal).
    fn open(&self, ino: Ino) -> Result<()>;

    /// Drops a reference of [`Self::open`]. The last one frees an inode without names.
    fn close(&self, ino: Ino) -> Result<()>;

    /// Reads from a regular file into `buf`. Returns fewer bytes only at the end of the file.
    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Reports the location of the bytes that [`Self::read`] would copy (`len` bytes from `offset`, up to the end of
    /// the file), if all of them are located in files of the host. `take` gets them in order; until it returns, they do
    /// not change and their space is not reused.
    ///
    /// Returns false, without a call of `take`, if there is nothing to read, if bytes are located elsewhere, or if
    /// there are too many pieces. The caller then uses [`Self::read`].
    fn read_in_place(
        &self,
        _ino: Ino,
        _offset: u64,
        _len: u64,
        _take: &mut dyn FnMut(&[FilePart<'_>]),
    ) -> Result<bool> {
        Ok(false)
    }

    /// Writes all of `data` at `offset` and grows the file as needed. `time` becomes the `mtime` and `ctime` of the
    /// file, unless `data` is empty; `None` leaves them unchanged. A failed write may have written a prefix. After a
    /// crash, overwritten bytes may be a mix of old and new ones.
    fn write(&self, ino: Ino, offset: u64, data: &[u8], time: Option<Timestamp>) -> Result<()>;

    /// Returns whether files can share blocks ([`Self::clone_range`]).
    fn can_clone(&self) -> bool {
        false
    }

    /// Shares the blocks of a range of the file `from` with the file `to`, as `FICLONERANGE` of Linux does: inode and
    /// offset of both, and the number of bytes, 0 for all up to the end of `from`. Replaces the bytes in `to`, and
    /// grows it as needed. Later writes to either file copy shared blocks first. Holes and unwritten space become
    /// holes. `time` as in [`Self::write`].
    ///
    /// Offsets and length must be multiples of the block size. The length need not be if the range ends where `from`
    /// ends, and at or past the end of `to`. The range may be in the same file if it does not overlap.
    ///
    /// # Errors
    /// `Unsupported` if files cannot share blocks; `Invalid` for other ranges, and for files on different devices.
    fn clone_range(
        &self,
        _from: (Ino, u64),
        _to: (Ino, u64),
        _len: u64,
        _time: Option<Timestamp>,
    ) -> Result<()> {
        Err(Error::unsupported(
            "sharing blocks between files",
            "copy the bytes, or use XFS with reflink",
        ))
    }

    /// Shares blocks as [`Self::clone_range`] does if both ranges have the same bytes. Returns whether they have.
    /// Changes neither bytes nor times. Both ranges must be within the files.
    ///
    /// # Errors
    /// Returns the errors of [`Self::clone_range`].
    fn dedupe_range(&self, _from: (Ino, u64), _to: (Ino, u64), _len: u64) -> Result<bool> {
        Err(Error::unsupported("sharing blocks between files", "use XFS with reflink"))
    }

    /// Allocates, deallocates or zeroes a byte range, depending on `mode`.
    fn allocate(&self, ino: Ino, offset: u64, len: u64, mode: AllocateMode) -> Result<()>;

    /// Sets the size. Growing adds a hole, shrinking frees the space past the new size. `time` becomes the `mtime` and
    /// `ctime` of the file, even if the size does not change; `None` leaves them unchanged.
    fn truncate(&self, ino: Ino, size: u64, time: Option<Timestamp>) -> Result<()>;

    /// Exchanges the blocks of a range of the file `one` with those of a range of `two`, as `XFS_IOC_EXCHANGE_RANGE` of
    /// Linux does: inode and offset of both, and the number of bytes, 0 for all up to the ends of both files, which also
    /// exchanges the rest of their sizes. Atomic, also after a crash, and durable on return. `time` as in
    /// [`Self::write`], for both.
    ///
    /// Offsets and length must be multiples of the block size. The length need not be if both ranges end where their
    /// files end.
    ///
    /// # Errors
    /// `Unsupported` if the format cannot exchange blocks, or if the ranges have more extents than one transaction can
    /// change; `Invalid` for other ranges, and for files on different devices.
    fn exchange_range(
        &self,
        _one: (Ino, u64),
        _two: (Ino, u64),
        _len: u64,
        _time: Option<Timestamp>,
    ) -> Result<()> {
        Err(Error::unsupported("exchanging blocks of files", "copy the bytes, or use XFS"))
    }

    /// Reports the extents that cover `offset..offset + len` (clipped to the size), in order and without gaps, until
    /// the callback breaks.
    fn extent_map(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(MappedExtent) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Lists a directory from `from` on, including `.` and `..`, until the callback breaks. The entry at which it
    /// breaks counts as delivered.
    fn readdir(
        &self,
        dir: Ino,
        from: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Reports all entries of a directory, including `.` and `..`, in the order that is fastest to read, until the
    /// callback breaks. The cookies of these entries are not valid for [`Self::readdir`].
    fn for_each_entry(
        &self,
        dir: Ino,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.readdir(dir, Cookie::default(), each)
    }

    /// Returns the value of an extended attribute. Names are those of Linux (`user.x`, `system.posix_acl_access` in
    /// Linux's encoding, …).
    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;

    /// Creates or replaces an extended attribute.
    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8]) -> Result<()>;

    /// Removes an extended attribute. `NoAttribute` if it does not exist.
    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()>;

    /// Reports the names of all extended attributes.
    fn list_xattrs(&self, ino: Ino, each: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Reports every link to an inode, as directory and name, in no particular order. Returns false, and reports
    /// nothing, if the format does not store parent pointers.
    fn parents(&self, _ino: Ino, _each: &mut dyn FnMut(Ino, &[u8])) -> Result<bool> {
        Ok(false)
    }

    /// Returns the flags, project and allocation hints of an inode.
    fn file_attributes(&self, _ino: Ino) -> Result<FileAttributes> {
        Err(Error::unsupported("inode flags", "use a format that supports them"))
    }

    /// Changes flags, project and allocation hints. `Unsupported` if the format or the type of the inode does not have
    /// one of them, `Invalid` for an invalid hint. [`crate::InodeFlags::DESCRIBING`] do not change.
    fn set_file_attributes(&self, _ino: Ino, _change: &FileAttributesChange) -> Result<()> {
        Err(Error::unsupported("inode flags", "use a format that supports them"))
    }

    /// Discards free space on the device within the bytes `range` of the file system, in runs of at least `len_min`
    /// bytes. Returns the number of discarded bytes. Recently freed space may or may not be included. Other operations
    /// may run at the same time.
    ///
    /// # Errors
    /// `Unsupported` if the device does not support discard.
    fn trim(&self, _range: Range<u64>, _len_min: u64) -> Result<u64> {
        Err(Error::unsupported("trimming", "use a format that supports it"))
    }

    /// Makes all completed changes of an inode durable: its contents, attributes and names.
    fn fsync(&self, ino: Ino) -> Result<()>;

    /// Makes durable everything that is needed to read the contents of an inode. Like [`Self::fsync`], but timestamps
    /// may be omitted.
    fn fdatasync(&self, ino: Ino) -> Result<()> {
        self.fsync(ino)
    }

    /// Makes all completed changes durable.
    fn sync(&self) -> Result<()>;

    /// Returns the label: bytes without NUL.
    fn label(&self) -> Result<Vec<u8>> {
        Err(Error::unsupported("labels", "this file system has none"))
    }

    /// Sets the label, also in the copies of the superblock; it is durable on return. `Invalid` if it contains a NUL or
    /// exceeds the maximum of the format (16 bytes in ext4, 12 in XFS).
    fn set_label(&self, _label: &[u8]) -> Result<()> {
        Err(Error::unsupported("labels", "this file system has none"))
    }

    /// Shuts the file system down. After the return nothing is written any more, except contents of files by operations
    /// in progress, and all changes fail. Changes that are not durable yet are lost, as in a crash.
    fn shut_down(&self) -> Result<()> {
        Err(Error::unsupported("shutting down", "unmount it"))
    }
}
