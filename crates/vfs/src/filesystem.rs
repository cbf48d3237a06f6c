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
/// An operation either happens as a whole or, when it returns an error, leaves no trace. The exceptions are
/// long ones on contents ([`Self::write`], [`Self::allocate`], [`Self::truncate`]): they are several steps from
/// front to back, each of which happens as a whole, and one that fails leaves what the steps before it did.
/// Names are bytes without `/` or NUL, 1 to 255 of them; `.` and `..` are looked up as names
/// but cannot be made or removed. No method checks permissions: that is the caller's policy. Flags that
/// forbid changes ([`crate::Protection`]) are obeyed, with `NotPermitted`.
/// Callbacks run while the inode is locked: they must not change it, and where other threads change
/// things at the same time, they must not ask for anything of the file system (a thread that waits to change
/// the inode goes first).
pub trait FileSystem: Send + Sync {
    /// The root directory.
    fn root(&self) -> Ino;

    /// Whether names that differ may stand for the same entry, in some directory at least: where case
    /// does not count.
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
    /// Those of [`Self::folded_name`].
    fn is_same_name(&self, dir: Ino, a: &[u8], b: &[u8]) -> Result<bool> {
        Ok(a == b || self.folds_names() && self.folded_name(dir, a)? == self.folded_name(dir, b)?)
    }

    /// Whether reading waits for something far away, so that who will read much does well to read ahead with
    /// several threads.
    fn is_far(&self) -> bool {
        false
    }

    /// Totals of space and inodes.
    fn statfs(&self) -> Result<StatFs>;

    /// The inode `name` stands for in `dir`. `NotFound` if there is none.
    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino>;

    /// The attributes of an inode. `NotFound` if it is not in use.
    fn attributes(&self, ino: Ino) -> Result<Attributes>;

    /// Changes attributes; sets `ctime` only if asked to.
    fn set_attributes(&self, ino: Ino, change: &SetAttributes) -> Result<()>;

    /// Makes an empty regular file.
    fn create(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino>;

    /// Makes an empty directory.
    fn mkdir(&self, dir: Ino, name: &[u8], new: &NewInode) -> Result<Ino>;

    /// Makes a device, fifo or socket.
    fn mknod(&self, dir: Ino, name: &[u8], file: SpecialFile, new: &NewInode) -> Result<Ino>;

    /// Makes a symbolic link to `target`.
    fn symlink(&self, dir: Ino, name: &[u8], target: &[u8], new: &NewInode) -> Result<Ino>;

    /// The target of a symbolic link.
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>>;

    /// Makes a regular file that has no name yet, near `dir`. It is open (see [`Self::open`]); if it
    /// is closed before [`Self::link`] gave it a name, or the machine stops, it is gone.
    fn create_unlinked(&self, dir: Ino, new: &NewInode) -> Result<Ino>;

    /// Gives the non-directory `ino` another name. `time` becomes the `ctime` of the inode and the
    /// `mtime` and `ctime` of the directory; `None` leaves them.
    fn link(&self, ino: Ino, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()>;

    /// Gives the non-directory `ino` a name that stands for another one, which loses it as by
    /// [`Self::unlink`]: at any moment, and after a crash, the name leads to one of the two. Nothing
    /// happens if it leads to `ino` already; `NotFound` if the name is free. `time` as in
    /// [`Self::link`].
    fn link_over(&self, ino: Ino, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()>;

    /// Removes a name of a non-directory, and with the last one the inode, unless it is open: then
    /// it lives until it is closed. `time` as in [`Self::link`].
    fn unlink(&self, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()>;

    /// Removes an empty directory. `time` as in [`Self::link`].
    fn rmdir(&self, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()>;

    /// Moves the entry `from` (directory and name) to `to`. What `to` named before is removed as by
    /// `unlink` or `rmdir`, unless `mode` says otherwise; if both name the same inode, nothing
    /// happens. In a directory that folds names, an entry that is replaced keeps its spelling. If both
    /// names lead to the same entry, [`RenameMode::Replace`] gives it the spelling of `to`. `time` becomes
    /// the `ctime` of the inodes moved or removed and the `mtime` and `ctime` of the directories. `Invalid`
    /// if a directory would move into itself or below.
    fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        time: Option<Timestamp>,
    ) -> Result<()>;

    /// Moves an entry as [`Self::rename`] and leaves a whiteout in its place, in the same moment: a character
    /// device of the number 0:0, with the owner, permissions and times of `whiteout` (its `parent_time`
    /// means nothing). By one, an overlay says that a name of a lower layer is gone. Nothing happens if both
    /// names stand for one inode. `Invalid` for [`RenameMode::Exchange`], which leaves no place.
    fn rename_with_whiteout(
        &self,
        _from: (Ino, &[u8]),
        _to: (Ino, &[u8]),
        _mode: RenameMode,
        _whiteout: &NewInode,
        _time: Option<Timestamp>,
    ) -> Result<()> {
        Err(Error::unsupported("whiteouts", "this file system leaves none"))
    }

    /// Counts a reference to an inode, which keeps it from being freed when its last name goes.
    /// `NotFound` if it is not in use, or one of the file system's own (a journal, for one).
    fn open(&self, ino: Ino) -> Result<()>;

    /// Gives back a reference that [`Self::open`] counted. With the last one, an inode without a
    /// name is freed.
    fn close(&self, ino: Ino) -> Result<()>;

    /// Reads from a regular file into `buf`; fewer bytes only at the end of the file.
    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Says where the bytes lie that [`Self::read`] would copy (`len` from `offset` on, as far as the file
    /// goes), if all of them lie in files of the host's: `take` gets them in order, and nobody changes them
    /// or gives their space to another file before it returns. False if there is nothing to read, or not all
    /// of it lies so, or in too many pieces; then `take` was not called, and reading goes on as ever.
    fn read_in_place(
        &self,
        _ino: Ino,
        _offset: u64,
        _len: u64,
        _take: &mut dyn FnMut(&[FilePart<'_>]),
    ) -> Result<bool> {
        Ok(false)
    }

    /// Writes all of `data` at `offset`, growing the file as needed. `time` becomes the `mtime` and `ctime` of
    /// the file, unless `data` is empty; `None` leaves them. When it fails, a front part may have been written;
    /// bytes that were written over others may be old and new mixed after a crash.
    fn write(&self, ino: Ino, offset: u64, data: &[u8], time: Option<Timestamp>) -> Result<()>;

    /// Provides, empties or zeroes the space of a byte range, as `mode` says.
    fn allocate(&self, ino: Ino, offset: u64, len: u64, mode: AllocateMode) -> Result<()>;

    /// Sets the size: growing adds a hole, shrinking frees what is past it. `time` becomes the `mtime` and
    /// `ctime` of the file, also if it has that size already; `None` leaves them.
    fn truncate(&self, ino: Ino, size: u64, time: Option<Timestamp>) -> Result<()>;

    /// Reports the runs that cover `offset..offset + len` (clipped to the size), in order and
    /// without gaps, until the callback breaks.
    fn extent_map(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(MappedExtent) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Lists a directory from `from` on, `.` and `..` included, until the callback breaks.
    /// The entry that it breaks on counts as delivered.
    fn readdir(
        &self,
        dir: Ino,
        from: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Reports all entries of a directory, `.` and `..` included, in the order that is fastest to
    /// read, until the callback breaks. Their cookies mean nothing to a listing.
    fn for_each_entry(
        &self,
        dir: Ino,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.readdir(dir, Cookie::default(), each)
    }

    /// The value of an extended attribute, named as Linux names it (`user.x`,
    /// `system.posix_acl_access` in Linux's xattr encoding, …).
    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;

    /// Creates or replaces an extended attribute.
    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8]) -> Result<()>;

    /// Removes an extended attribute. `NoAttribute` if there is none of that name.
    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()>;

    /// Reports the names of all extended attributes.
    fn list_xattrs(&self, ino: Ino, each: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Reports every link to an inode, as the directory and the name there, in no certain order. False,
    /// and nothing reported, if the format does not keep them: only its directories know.
    fn parents(&self, _ino: Ino, _each: &mut dyn FnMut(Ino, &[u8])) -> Result<bool> {
        Ok(false)
    }

    /// Flags of an inode, its project and its hints for allocation.
    fn file_attributes(&self, _ino: Ino) -> Result<FileAttributes> {
        Err(Error::unsupported("flags of inodes", "use a format that has them"))
    }

    /// Changes flags, project and hints. `Unsupported` for what the format or the type of the inode does
    /// not have, `Invalid` for a hint that cannot be. [`crate::InodeFlags::DESCRIBING`] stay as they are.
    fn set_file_attributes(&self, _ino: Ino, _change: &FileAttributesChange) -> Result<()> {
        Err(Error::unsupported("flags of inodes", "use a format that has them"))
    }

    /// Gives the device back the space that is free for good, of the bytes `range` of the file system, in
    /// runs of at least `len_min` bytes; how many bytes that were. What was freed a moment ago may be
    /// among it or not. Others may go on meanwhile.
    ///
    /// # Errors
    /// `Unsupported` if the device has no use for that.
    fn trim(&self, _range: Range<u64>, _len_min: u64) -> Result<u64> {
        Err(Error::unsupported("trimming", "use a format that has it"))
    }

    /// Makes everything done so far to an inode durable: its contents, attributes and names.
    fn fsync(&self, ino: Ino) -> Result<()>;

    /// Makes durable what is needed to read back everything written so far to an inode: as
    /// [`Self::fsync`], but times may stay behind.
    fn fdatasync(&self, ino: Ino) -> Result<()> {
        self.fsync(ino)
    }

    /// Makes everything done so far durable.
    fn sync(&self) -> Result<()>;

    /// The label: bytes without NUL.
    fn label(&self) -> Result<Vec<u8>> {
        Err(Error::unsupported("labels", "this file system has none"))
    }

    /// Gives the file system another label, durable when this returns, also in the copies of its superblock.
    /// `Invalid` if it is longer than the format has room for (16 bytes in ext4, 12 in XFS) or has a NUL.
    fn set_label(&self, _label: &[u8]) -> Result<()> {
        Err(Error::unsupported("labels", "this file system has none"))
    }

    /// Ends all changes for good: when this returns, nothing is written any more but file contents of
    /// operations that are under way, and whatever would change something fails. What is not durable yet is
    /// lost, as in a crash.
    fn shut_down(&self) -> Result<()> {
        Err(Error::unsupported("shutting down", "unmount it"))
    }
}
