//! The inode-level interface that every format implements and every front end uses.

use std::ops::ControlFlow;

use crate::{
    AllocateMode, Attributes, Cookie, DirEntry, Ino, MappedExtent, NewInode, Result, SetAttributes,
    SpecialFile, StatFs,
};

/// A mounted file system. Every method may be called from any thread.
///
/// An operation either happens as a whole or, when it returns an error, leaves no trace.
/// Names are bytes without `/` or NUL, 1 to 255 of them; `.` and `..` are looked up as names
/// but cannot be made or removed. No method checks permissions: that is the caller's policy.
/// Callbacks run while the inode is locked: they must not change it.
pub trait FileSystem: Send + Sync {
    /// The root directory.
    fn root(&self) -> Ino;

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

    /// Gives the non-directory `ino` another name. Its `ctime` stays as it is.
    fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<()>;

    /// Reads from a regular file into `buf`; fewer bytes only at the end of the file.
    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Writes all of `data` at `offset`, growing the file as needed. Times stay as they are.
    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()>;

    /// Provides space for a byte range, growing the file to its end if that is past the size.
    fn allocate(&self, ino: Ino, offset: u64, len: u64, mode: AllocateMode) -> Result<()>;

    /// Sets the size: growing adds a hole, shrinking frees what is past it (`Unsupported` in ext4
    /// so far).
    fn truncate(&self, ino: Ino, size: u64) -> Result<()>;

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

    /// The value of an extended attribute, named as Linux names it (`user.x`,
    /// `system.posix_acl_access` in Linux's xattr encoding, …).
    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;

    /// Creates or replaces an extended attribute.
    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8]) -> Result<()>;

    /// Reports the names of all extended attributes.
    fn list_xattrs(&self, ino: Ino, each: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Makes everything done so far durable.
    fn sync(&self) -> Result<()>;
}
