//! Entries that are to be changed, and what they lead to.

use vfs::locks::{InodeLocks, Locked};
use vfs::names::{self, Directories};
use vfs::{Corruption, Error, Ino, NAME_LEN_MAX, Result};

use crate::Xfs;
use crate::attr::parent::Link;
use crate::dir::{self, Spot};
use crate::inode::Handle;

/// The directories of XFS.
pub(super) struct Names;

/// What a name leads to, in a directory that is locked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located {
    pub(super) ino: Ino,
    /// Where its entry is, if that helps to find it again.
    pub(super) spot: Option<Spot>,
}

impl Directories for Names {
    type Fs = Xfs;
    type Dir = Handle;
    type Found = Located;

    fn locks(fs: &Xfs) -> &InodeLocks {
        &fs.locks
    }

    fn root_directory(fs: &Xfs) -> Ino {
        fs.root_ino()
    }

    fn load_parent(fs: &Xfs, dir: Ino) -> Result<Handle> {
        fs.load_dir(dir)
    }

    fn find_named(fs: &Xfs, dir: &Handle, name: &[u8]) -> Result<Option<Located>> {
        if name.len() > NAME_LEN_MAX {
            return Err(Error::NameTooLong);
        }
        let Some((found, spot)) = dir::locate(fs, dir, name)? else { return Ok(None) };
        if found.ino == dir.ino() {
            return Err(dir.corrupt("directory", "it is its own subdirectory"));
        }
        Ok(Some(Located { ino: found.ino, spot }))
    }

    fn leads_to_directory(fs: &Xfs, dir: &Handle, found: &Located) -> Result<bool> {
        Ok(fs.load_named(dir, found)?.inode.is_dir())
    }

    fn parent_of(fs: &Xfs, dir: &Handle) -> Result<Option<Ino>> {
        Ok(dir::lookup(&mut &*fs, dir, b"..")?.map(|found| found.ino))
    }

    fn generation_of(dir: &Handle) -> u32 {
        dir.inode.generation()
    }

    fn ino_of(found: &Located) -> Ino {
        found.ino
    }

    fn astray(dir: &Handle) -> Error {
        dir.corrupt("directory", "'..' does not lead to the root")
    }
}

impl<'n> Link<'n> {
    /// The link that an entry of this name in a directory is.
    pub(super) fn new(dir: &Handle, name: &'n [u8]) -> Self {
        Self { dir: dir.ino(), generation: dir.inode.generation(), name }
    }
}

impl Xfs {
    /// Locks a directory and the inode that `name` stands for in it; and another inode.
    pub(super) fn lock_entry(
        &self,
        dir: Ino,
        name: &[u8],
        also: Option<Ino>,
    ) -> Result<(Locked<'_>, Handle, Located)> {
        names::lock_entry::<Names>(self, (dir, name), also)
    }

    /// The inode that an entry names, which must be in use.
    pub(super) fn load_named(&self, dir: &Handle, found: &Located) -> Result<Handle> {
        let unused = || {
            Corruption::new("directory entry", "its inode is not in use")
                .of_inode(dir.ino().0)
                .mismatch("an inode with links", found.ino)
        };
        match self.load(found.ino) {
            Ok(inode) if inode.inode.nlink() > 0 => Ok(inode),
            Ok(_) | Err(Error::NotFound) => Err(unused().into()),
            Err(other) => Err(other),
        }
    }

    /// `NotEmpty` if a directory, which is locked, has entries.
    pub(super) fn require_empty(&self, dir: &Handle) -> Result<()> {
        if dir::is_empty(&mut &*self, dir)? { Ok(()) } else { Err(Error::NotEmpty) }
    }
}
