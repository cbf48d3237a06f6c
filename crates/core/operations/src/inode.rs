//! Operations on inodes that both formats share: reads under the inode's lock, and changes of attributes.

use vfs::{Error, FileType, Ino, Protection, Result, SetAttributes, Timestamp};

use crate::locks::InodeLocks;
use crate::{Operation, Outcome, RunOperations};

/// An inode as read: its number, its location and a copy of its fields. Operations change the copy and stage it.
pub trait InodeHandle: Clone {
    /// Returns the inode number.
    fn ino(&self) -> Ino;

    /// Returns the generation, which differs between inodes that had the same number.
    fn generation(&self) -> u32;

    /// Returns the type.
    ///
    /// # Errors
    /// `Corrupt` if the mode contains no valid type.
    fn file_type(&self) -> Result<FileType>;

    /// Returns whether it is a directory.
    fn is_dir(&self) -> bool;

    /// Returns the number of links. A directory also counts its `.` and the `..` of its subdirectories.
    fn links(&self) -> u32;

    /// Sets the number of links, which must not exceed the maximum of the format.
    fn set_links(&mut self, links: u32);

    /// Returns the restrictions by the inode's flags.
    fn protection(&self) -> Protection;

    /// Sets the modification time.
    fn set_mtime(&mut self, time: Timestamp);

    /// Sets the change time.
    fn set_ctime(&mut self, time: Timestamp);

    /// Applies a change of attributes.
    fn apply(&mut self, change: &SetAttributes);

    /// Creates an error for damage to this inode or its structures.
    fn corrupt(&self, structure: &'static str, problem: &'static str) -> Error;

    /// Sets the times of a change of contents, if `time` is given.
    fn touch(&mut self, time: Option<Timestamp>) {
        if let Some(time) = time {
            self.set_mtime(time);
            self.set_ctime(time);
        }
    }

    /// Checks that it is a directory.
    ///
    /// # Errors
    /// `NotADirectory`.
    fn require_directory(&self) -> Result<()> {
        if self.is_dir() { Ok(()) } else { Err(Error::NotADirectory) }
    }
}

/// The inodes of a file system.
pub trait Inodes: RunOperations {
    /// An inode as read.
    type Inode: InodeHandle;

    /// Returns the locks of all inodes.
    fn locks(&self) -> &InodeLocks;

    /// Reads an inode in use.
    ///
    /// # Errors
    /// `NotFound` if it is not in use; read errors.
    fn load(&self, ino: Ino) -> Result<Self::Inode>;

    /// Ensures that the quota accounting has records for the new owners of a change. Does nothing without quotas.
    ///
    /// # Errors
    /// Returns the errors of adding an owner.
    fn provide_owners(&self, _change: &SetAttributes) -> Result<()> {
        Ok(())
    }

    /// Stages an inode, to be written when the operation commits.
    fn stage(op: &mut Self::Op<'_>, inode: Self::Inode);

    /// Stages an inode with changed attributes. Formats whose quotas count more than the inode itself note that here.
    ///
    /// # Errors
    /// Read errors.
    fn stage_attributes(op: &mut Self::Op<'_>, inode: Self::Inode) -> Outcome<()> {
        Self::stage(op, inode);
        Ok(())
    }
}

/// Reads a directory in use. A removed directory that is still open counts as not in use: it has no names and gets
/// none.
///
/// # Errors
/// `NotFound` if it is not in use or was removed; `NotADirectory`; read errors.
pub fn load_dir<F: Inodes>(fs: &F, ino: Ino) -> Result<F::Inode> {
    let inode = fs.load(ino)?;
    inode.require_directory()?;
    if inode.links() == 0 { Err(Error::NotFound) } else { Ok(inode) }
}

/// Calls `look` with an inode under its shared lock.
///
/// # Errors
/// `NotFound` if it is not in use; read errors, and those of `look`.
pub fn look_at<F: Inodes, R>(
    fs: &F,
    ino: Ino,
    look: impl FnOnce(&F::Inode) -> Result<R>,
) -> Result<R> {
    let _lock = fs.locks().shared(ino);
    look(&fs.load(ino)?)
}

/// Calls `look` with a directory under its shared lock.
///
/// # Errors
/// Returns the errors of [`load_dir`] and of `look`.
pub fn look_at_dir<F: Inodes, R>(
    fs: &F,
    dir: Ino,
    look: impl FnOnce(&F::Inode) -> Result<R>,
) -> Result<R> {
    let _lock = fs.locks().shared(dir);
    look(&load_dir(fs, dir)?)
}

/// Changes attributes of an inode, as [`vfs::FileSystem::set_attributes`] specifies.
///
/// # Errors
/// Returns the errors of that method.
pub(crate) fn set_attributes<F: Inodes>(fs: &F, ino: Ino, change: &SetAttributes) -> Result<()> {
    fs.mode().check_writable()?;
    let _lock = fs.locks().exclusive(&[ino]);
    let mut inode = fs.load(ino)?;
    change.check(inode.protection())?;
    fs.provide_owners(change)?;
    inode.apply(change);
    fs.atomically(|op| {
        if change.is_of_times() {
            op.set_minor();
        }
        F::stage_attributes(op, inode.clone())
    })
}
