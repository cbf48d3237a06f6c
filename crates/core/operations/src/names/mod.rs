//! Operations on names: creation, linking, removal and renaming, for all formats.
//!
//! This module defines the order of checks and their errors, the locks, and the changes of directories, link counts and
//! inodes in one operation. A format implements the storage of entries ([`Directories`]), the creation of inodes
//! ([`MakeInodes`]), and the effect of a link on its inode ([`LinkEffects`]).
//!
//! The inode of a name is known only after its directory is locked and searched. The inode's lock is then taken as
//! well. If that is not possible in order, both are released, taken in order, and the name is looked up again.
//!
//! An operation may run several times, so it changes copies of inodes that were read before it began.

mod create;
mod link;
mod plan;
mod remove;
mod rename;

use std::borrow::Cow;

use smallvec::SmallVec;
use vfs::{Corruption, Error, FileType, Ino, NAME_LEN_MAX, Result};

pub use create::{MakeInodes, create, mkdir, symlink};
pub(crate) use create::{create_unlinked, mknod};
pub(crate) use link::link_over;
pub use link::{LinkEffects, drop_subdirectory, link};
pub(crate) use remove::{rmdir, unlink};
pub(crate) use rename::rename;

use crate::Outcome;
use crate::inode::{InodeHandle, Inodes, load_dir};
use crate::locks::Locked;

/// A name in a directory.
pub(crate) type Name<'n> = (Ino, &'n [u8]);

/// Contents of a directory entry.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'n> {
    /// Name of the entry.
    pub name: &'n [u8],
    /// Inode of the entry.
    pub ino: Ino,
    /// Type of that inode.
    pub file_type: FileType,
}

impl<'n> Entry<'n> {
    /// Creates an entry for an inode.
    ///
    /// # Errors
    /// `Corrupt` if the inode's mode contains no valid type.
    fn to<I: InodeHandle>(name: &'n [u8], inode: &I) -> Result<Self> {
        Ok(Self { name, ino: inode.ino(), file_type: inode.file_type()? })
    }
}

/// The directories of a format.
pub trait Directories: Inodes {
    /// A directory entry that was found, valid while the directory is locked.
    type Found: Copy;

    /// Returns the root directory.
    fn root_directory(&self) -> Ino;

    /// Finds the entry of a name that is to be changed. The name does not exceed the maximum length.
    ///
    /// # Errors
    /// Read errors.
    fn find_entry(&self, dir: &Self::Inode, name: &[u8]) -> Result<Option<Self::Found>>;

    /// Checks that names can be moved from or to a directory, or exchanged there.
    ///
    /// # Errors
    /// `Encrypted`.
    fn admit_move(&self, _dir: &Self::Inode) -> Result<()> {
        Ok(())
    }

    /// Returns the inode of an entry.
    fn ino_of(found: &Self::Found) -> Ino;

    /// Returns the stored name of an entry, where `name` led to `found`.
    ///
    /// The two differ only in a directory that folds names. Entries and parent pointers must have the stored spelling,
    /// so every operation requests it.
    ///
    /// # Errors
    /// Read errors.
    fn stored_name<'n>(
        &self,
        _dir: &Self::Inode,
        name: &'n [u8],
        _found: &Self::Found,
    ) -> Result<Cow<'n, [u8]>> {
        Ok(Cow::Borrowed(name))
    }

    /// Returns the parent directory, if there is a `..` entry.
    ///
    /// # Errors
    /// Read errors.
    fn parent_of(&self, dir: &Self::Inode) -> Result<Option<Ino>>;

    /// Returns whether a directory has no entries except `.` and `..`.
    ///
    /// # Errors
    /// Read errors.
    fn is_empty(&self, dir: &Self::Inode) -> Result<bool>;

    /// Adds an entry.
    ///
    /// # Errors
    /// `Exists` if the name exists; `NoSpace`; read errors.
    fn add_entry(op: &mut Self::Op<'_>, dir: &mut Self::Inode, entry: Entry<'_>) -> Outcome<()>;

    /// Changes the inode of an entry that was found.
    ///
    /// # Errors
    /// `NoSpace`; read errors.
    fn replace_entry(
        op: &mut Self::Op<'_>,
        dir: &mut Self::Inode,
        found: &Self::Found,
        entry: Entry<'_>,
    ) -> Outcome<()>;

    /// Removes an entry that was found.
    ///
    /// # Errors
    /// Read errors.
    fn remove_entry(
        op: &mut Self::Op<'_>,
        dir: &mut Self::Inode,
        name: &[u8],
        found: &Self::Found,
    ) -> Outcome<()>;

    /// Changes the `..` entry of a directory.
    ///
    /// # Errors
    /// `Corrupt` if it does not lead to `from`, in formats that check this; `NoSpace`; read errors.
    fn set_parent(op: &mut Self::Op<'_>, dir: &mut Self::Inode, from: Ino, to: Ino) -> Outcome<()>;

    /// Stages a directory whose entries changed, given in its new and old state.
    ///
    /// # Errors
    /// Read errors.
    fn stage_dir(op: &mut Self::Op<'_>, dir: Self::Inode, before: &Self::Inode) -> Outcome<()>;
}

/// Finds the entry of a name that is to be changed.
fn find_named<F: Directories>(fs: &F, dir: &F::Inode, name: &[u8]) -> Result<Option<F::Found>> {
    if name.len() > NAME_LEN_MAX {
        return Err(Error::NameTooLong);
    }
    let found = fs.find_entry(dir, name)?;
    if found.is_some_and(|found| F::ino_of(&found) == dir.ino()) {
        return Err(dir.corrupt("directory", "it is its own subdirectory"));
    }
    Ok(found)
}

/// Loads the inode of an entry, which must be in use.
fn load_named<F: Directories>(fs: &F, dir: &F::Inode, found: &F::Found) -> Result<F::Inode> {
    let ino = F::ino_of(found);
    let unused = || {
        Corruption::new("directory entry", "its inode is not in use")
            .of_inode(dir.ino().0)
            .mismatch("an inode with links", ino)
    };
    match fs.load(ino) {
        Ok(inode) if inode.links() > 0 => Ok(inode),
        Ok(_) | Err(Error::NotFound) => Err(unused().into()),
        Err(other) => Err(other),
    }
}

/// Checks that a directory, which is locked, has no entries.
///
/// # Errors
/// `NotEmpty`; read errors.
pub fn require_empty<F: Directories>(fs: &F, dir: &F::Inode) -> Result<()> {
    if fs.is_empty(dir)? { Ok(()) } else { Err(Error::NotEmpty) }
}

/// Locks a directory, the inode of `name` in it, and another inode. `NotFound` if the name does not exist.
#[allow(clippy::type_complexity, reason = "callers destructure the result")]
fn lock_entry<'a, F: Directories>(
    fs: &'a F,
    (dir, name): Name<'_>,
    also: Option<Ino>,
) -> Result<(Locked<'a>, F::Inode, F::Found)> {
    let mut wanted: SmallVec<[Ino; 4]> = SmallVec::from_slice(&[dir]);
    wanted.extend(also);
    let mut locked = fs.locks().exclusive(&wanted);
    loop {
        let parent = load_dir(fs, dir)?;
        let found = find_named(fs, &parent, name)?.ok_or(Error::NotFound)?;
        let ino = F::ino_of(&found);
        if locked.add(ino) {
            return Ok((locked, parent, found));
        }
        drop(locked);
        let with_child: SmallVec<[Ino; 4]> = wanted.iter().copied().chain([ino]).collect();
        locked = fs.locks().exclusive(&with_child);
    }
}

/// Adjusts the outcome of creating a name: if the name exists, returns `Exists` instead of certain other errors. `dir`
/// is the locked directory before the operation, which left no trace if it failed. A success needs no look-up, because
/// entries are never added twice.
fn taken_first<F: Directories, R>(
    fs: &F,
    (dir, name): (&F::Inode, &[u8]),
    outcome: Result<R>,
) -> Result<R> {
    let Err(
        Error::NoSpace
        | Error::NoInodes
        | Error::QuotaExceeded
        | Error::TooManyLinks
        | Error::IsADirectory
        | Error::Invalid(_),
    ) = outcome
    else {
        return outcome;
    };
    // If the look-up fails, the original error is returned.
    match find_named(fs, dir, name) {
        Ok(Some(_)) => Err(Error::Exists),
        _ => outcome,
    }
}
