//! Directories in all their forms: names to inodes.

use std::ops::ControlFlow;

use vfs::{Cookie, DirEntry, Error, FileType, Ino, NAME_LEN_MAX, Result};

use crate::Xfs;
use crate::inode::Handle;
use crate::op::Op;
use crate::source::Source;

/// An entry to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'n> {
    pub(crate) name: &'n [u8],
    pub(crate) ino: Ino,
    pub(crate) file_type: FileType,
}

/// What a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) ino: Ino,
    /// The type, where the directory says so.
    pub(crate) file_type: Option<FileType>,
}

/// Checks a name that is to be made or removed.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_LEN_MAX {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0)
    {
        return Err(Error::Invalid("not a name that an entry can have"));
    }
    Ok(())
}

/// Looks a name up, `.` and `..` too.
pub(crate) fn lookup(
    _source: &mut impl Source,
    _dir: &Handle,
    _name: &[u8],
) -> Result<Option<Found>> {
    Err(Error::unsupported("directories", ""))
}

/// Whether a directory has no entries but `.` and `..`.
pub(crate) fn is_empty(_source: &mut impl Source, _dir: &Handle) -> Result<bool> {
    Err(Error::unsupported("directories", ""))
}

/// Lists a directory as [`vfs::FileSystem::readdir`] does.
pub(crate) fn readdir(
    _fs: &Xfs,
    _dir: &Handle,
    _from: Cookie,
    _each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Result<()> {
    Err(Error::unsupported("directories", ""))
}

impl Op<'_> {
    /// Makes a new inode an empty directory below `parent` (itself for the root).
    pub(crate) fn init_dir(&mut self, _dir: &mut Handle, _parent: Ino) -> Result<()> {
        Err(Error::unsupported("directories", ""))
    }

    /// Adds an entry. `Exists` if the name is taken.
    pub(crate) fn add_entry(&mut self, _dir: &mut Handle, _entry: Entry<'_>) -> Result<()> {
        Err(Error::unsupported("directories", ""))
    }

    /// Removes an entry and says what it led to. `NotFound` if there is none.
    pub(crate) fn remove_entry(&mut self, _dir: &mut Handle, _name: &[u8]) -> Result<Found> {
        Err(Error::unsupported("directories", ""))
    }

    /// Makes a name that is there (`..` too) lead elsewhere, and says what it led to. `NotFound` if
    /// there is none.
    pub(crate) fn replace_entry(&mut self, _dir: &mut Handle, _entry: Entry<'_>) -> Result<Found> {
        Err(Error::unsupported("directories", ""))
    }
}
