//! Inodes, as far as both formats deal with them alike: looking at one under its lock, and changing its
//! attributes.

use vfs::{Error, FileType, Ino, Protection, Result, SetAttributes, Timestamp};

use crate::locks::InodeLocks;
use crate::{Operation, RunOperations};

/// An inode as it was read: its number, its place and a copy of its fields. Operations change the copy
/// and stage it.
pub trait InodeHandle: Clone {
    /// Its number.
    fn ino(&self) -> Ino;

    /// Its generation: two inodes that had one number differ in it.
    fn generation(&self) -> u32;

    /// Its type.
    ///
    /// # Errors
    /// `Corrupt` if its mode names none.
    fn file_type(&self) -> Result<FileType>;

    /// Whether it is a directory.
    fn is_dir(&self) -> bool;

    /// How many names it has; a directory also counts its `.` and the `..` of its subdirectories.
    fn links(&self) -> u32;

    /// Sets the number of names, which the format can hold.
    fn set_links(&mut self, links: u32);

    /// What its flags forbid.
    fn protection(&self) -> Protection;

    /// Sets the time of the last change of its contents.
    fn set_mtime(&mut self, time: Timestamp);

    /// Sets the time of the last change of the inode.
    fn set_ctime(&mut self, time: Timestamp);

    /// Sets the attributes that are asked for.
    fn apply(&mut self, change: &SetAttributes);

    /// Damage to this inode or to what belongs to it.
    fn corrupt(&self, structure: &'static str, problem: &'static str) -> Error;

    /// Notes a change of its contents, if there is a time for it.
    fn touch(&mut self, time: Option<Timestamp>) {
        if let Some(time) = time {
            self.set_mtime(time);
            self.set_ctime(time);
        }
    }

    /// `NotADirectory` unless it is one.
    ///
    /// # Errors
    /// That one.
    fn require_directory(&self) -> Result<()> {
        if self.is_dir() { Ok(()) } else { Err(Error::NotADirectory) }
    }
}

/// The inodes of a file system.
pub trait Inodes: RunOperations {
    /// An inode as it was read.
    type Inode: InodeHandle;

    /// The locks of all inodes.
    fn locks(&self) -> &InodeLocks;

    /// Reads an inode in use.
    ///
    /// # Errors
    /// `NotFound` if it is not in use; what reading brings.
    fn load(&self, ino: Ino) -> Result<Self::Inode>;

    /// Makes sure that what counts the usage of owners knows the new ones of a change. Nothing where
    /// usage is not counted.
    ///
    /// # Errors
    /// What adding an owner brings.
    fn provide_owners(&self, _change: &SetAttributes) -> Result<()> {
        Ok(())
    }

    /// Writes an inode when the operation commits.
    fn stage(op: &mut Self::Op<'_>, inode: Self::Inode);
}

/// Reads a directory in use. One that was removed has no names and gets none, even while it is open.
///
/// # Errors
/// `NotFound` if it is not in use or was removed; `NotADirectory`; what reading brings.
pub fn load_dir<F: Inodes>(fs: &F, ino: Ino) -> Result<F::Inode> {
    let inode = fs.load(ino)?;
    inode.require_directory()?;
    if inode.links() == 0 { Err(Error::NotFound) } else { Ok(inode) }
}

/// Lets `look` see an inode, which nobody changes meanwhile.
///
/// # Errors
/// `NotFound` if it is not in use; what reading brings, and what `look` returns.
pub fn look_at<F: Inodes, R>(
    fs: &F,
    ino: Ino,
    look: impl FnOnce(&F::Inode) -> Result<R>,
) -> Result<R> {
    let _lock = fs.locks().shared(ino);
    look(&fs.load(ino)?)
}

/// Lets `look` see a directory, which nobody changes meanwhile.
///
/// # Errors
/// As [`load_dir`], and what `look` returns.
pub fn look_at_dir<F: Inodes, R>(
    fs: &F,
    dir: Ino,
    look: impl FnOnce(&F::Inode) -> Result<R>,
) -> Result<R> {
    let _lock = fs.locks().shared(dir);
    look(&load_dir(fs, dir)?)
}

/// Changes attributes of an inode, as [`vfs::FileSystem::set_attributes`] says.
///
/// # Errors
/// What that method returns.
pub fn set_attributes<F: Inodes>(fs: &F, ino: Ino, change: &SetAttributes) -> Result<()> {
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
        F::stage(op, inode.clone());
        Ok(())
    })
}
