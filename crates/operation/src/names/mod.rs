//! Operations on names: making, linking, removing and moving what they lead to, in every format.
//!
//! Here are the order of checks and their errors, the locks, and what one operation changes of
//! directories, link counts and inodes. A format supplies how entries are stored ([`Directories`]), what
//! a new inode is like ([`MakeInodes`]), and what a link means to the inode it leads to ([`Links`]).
//!
//! Which inode a name stands for is known only once its directory is locked and searched. The
//! inode's lock is then taken as well; where that is not possible in order, both are let go, taken
//! in order, and the name is looked up again.
//!
//! An operation may run several times, so it changes copies of what was read before it began.

mod create;
mod link;
mod plan;
mod remove;
mod rename;

use std::borrow::Cow;

use smallvec::SmallVec;
use vfs::{Corruption, Error, FileType, Ino, NAME_LEN_MAX, Result};

pub use create::{MakeInodes, create, create_unlinked, mkdir, mknod, symlink};
pub use link::{Links, drop_subdirectory, link, link_over};
pub use remove::{rmdir, unlink};
pub use rename::rename;

use crate::Outcome;
use crate::inode::{InodeHandle, Inodes, load_dir};
use crate::locks::Locked;

/// A name in a directory.
pub type Name<'n> = (Ino, &'n [u8]);

/// What a directory entry will say.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'n> {
    /// Its name.
    pub name: &'n [u8],
    /// The inode it leads to.
    pub ino: Ino,
    /// That inode's type.
    pub file_type: FileType,
}

impl<'n> Entry<'n> {
    /// An entry that leads to an inode.
    ///
    /// # Errors
    /// `Corrupt` if the inode's mode names no type.
    fn to<I: InodeHandle>(name: &'n [u8], inode: &I) -> Result<Self> {
        Ok(Self { name, ino: inode.ino(), file_type: inode.file_type()? })
    }
}

/// The directories of a format.
pub trait Directories: Inodes {
    /// What a name leads to, in a directory that is locked.
    type Found: Copy;

    /// The root directory.
    fn root_directory(&self) -> Ino;

    /// The entry of a name that is to be changed, if there is one. The name is not too long.
    ///
    /// # Errors
    /// Reading may fail.
    fn find_entry(&self, dir: &Self::Inode, name: &[u8]) -> Result<Option<Self::Found>>;

    /// Checks that names can move from a directory and to it, and be exchanged there.
    ///
    /// # Errors
    /// `Encrypted`.
    fn admit_move(&self, _dir: &Self::Inode) -> Result<()> {
        Ok(())
    }

    /// The inode that an entry names.
    fn ino_of(found: &Self::Found) -> Ino;

    /// Returns the name that an entry is stored under, where `name` led to `found`.
    ///
    /// The two differ only in a directory that folds names. Entries and parent pointers must have the stored spelling,
    /// so every operation asks for it.
    ///
    /// # Errors
    /// Reading may fail.
    fn stored_name<'n>(
        &self,
        _dir: &Self::Inode,
        name: &'n [u8],
        _found: &Self::Found,
    ) -> Result<Cow<'n, [u8]>> {
        Ok(Cow::Borrowed(name))
    }

    /// The directory above, if `..` says one.
    ///
    /// # Errors
    /// What reading brings.
    fn parent_of(&self, dir: &Self::Inode) -> Result<Option<Ino>>;

    /// Whether a directory has no entries but `.` and `..`.
    ///
    /// # Errors
    /// What reading brings.
    fn is_empty(&self, dir: &Self::Inode) -> Result<bool>;

    /// Adds an entry.
    ///
    /// # Errors
    /// `Exists` if the name is taken; `NoSpace`; what reading brings.
    fn add_entry(op: &mut Self::Op<'_>, dir: &mut Self::Inode, entry: Entry<'_>) -> Outcome<()>;

    /// Makes a name that was found lead elsewhere.
    ///
    /// # Errors
    /// `NoSpace`; what reading brings.
    fn replace_entry(
        op: &mut Self::Op<'_>,
        dir: &mut Self::Inode,
        found: &Self::Found,
        entry: Entry<'_>,
    ) -> Outcome<()>;

    /// Removes a name that was found.
    ///
    /// # Errors
    /// What reading brings.
    fn remove_entry(
        op: &mut Self::Op<'_>,
        dir: &mut Self::Inode,
        name: &[u8],
        found: &Self::Found,
    ) -> Outcome<()>;

    /// Makes `..` of a directory lead to another one.
    ///
    /// # Errors
    /// `Corrupt` if it does not lead to `from`, where that is looked at; `NoSpace`; what reading brings.
    fn set_parent(op: &mut Self::Op<'_>, dir: &mut Self::Inode, from: Ino, to: Ino) -> Outcome<()>;

    /// Writes a directory whose entries changed, given as it is and as it was, when the operation commits.
    ///
    /// # Errors
    /// What reading brings.
    fn stage_dir(op: &mut Self::Op<'_>, dir: Self::Inode, before: &Self::Inode) -> Outcome<()>;
}

/// The entry of a name that is to be changed, if there is one.
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

/// The inode that an entry names, which must be in use.
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

/// `NotEmpty` if a directory, which is locked, has entries.
///
/// # Errors
/// Also what reading brings.
pub fn require_empty<F: Directories>(fs: &F, dir: &F::Inode) -> Result<()> {
    if fs.is_empty(dir)? { Ok(()) } else { Err(Error::NotEmpty) }
}

/// Locks a directory and the inode that `name` stands for in it; and another inode. `NotFound` if there
/// is no such name.
#[allow(clippy::type_complexity, reason = "it is taken apart where it is asked for")]
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

/// What making a name came to, which changed nothing if it failed: `Exists` before any other refusal if
/// the name is taken. The directory, locked, is given as it was before. What succeeds is not looked up,
/// as nothing is entered twice.
fn taken_first<F: Directories, R>(
    fs: &F,
    (dir, name): (&F::Inode, &[u8]),
    outcome: Result<R>,
) -> Result<R> {
    let Err(
        Error::NoSpace
        | Error::NoInodes
        | Error::TooManyLinks
        | Error::IsADirectory
        | Error::Invalid(_),
    ) = outcome
    else {
        return outcome;
    };
    // If it cannot be looked up, the first reason is as good.
    match find_named(fs, dir, name) {
        Ok(Some(_)) => Err(Error::Exists),
        _ => outcome,
    }
}
