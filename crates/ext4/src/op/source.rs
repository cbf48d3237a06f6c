//! Where verified blocks come from: the cache, or an operation that holds what it reads.
//!
//! Finding a block of a file and looking up a name are the same for readers and for operations, with
//! the same checks. Only an
//! operation sees blocks it has changed itself, and it must ask its transaction for them: a block
//! that a transaction holds cannot be read past it.

use transaction::Tag;
use vfs::Result;

use crate::Ext4;
use crate::format::address::{Block, FileBlock};
use crate::inode::Handle;
use crate::map::{self, Place};
use crate::op::Op;

/// What the maps of files and directories are read from.
pub(crate) trait Source {
    /// The file system.
    fn fs(&self) -> &Ext4;

    /// Lets `look` see a metadata block, verified as `tag` says.
    fn with<T>(&mut self, place: Block, tag: Tag, look: impl FnOnce(&[u8]) -> T) -> Result<T>;

    /// The device block of a block of a directory, or `None` in a hole.
    fn place(&mut self, dir: &Handle, block: FileBlock) -> Result<Option<Block>>
    where
        Self: Sized,
    {
        Ok(match map::run_at(self, dir, block)?.place {
            Place::Written(block) => Some(block),
            Place::Unwritten(_) | Place::Hole => None,
        })
    }
}

/// Reads blocks as they are in the cache, and holds none of them.
impl Source for &Ext4 {
    fn fs(&self) -> &Ext4 {
        self
    }

    fn with<T>(&mut self, place: Block, tag: Tag, look: impl FnOnce(&[u8]) -> T) -> Result<T> {
        Ok(look(&self.block(place, tag)?))
    }
}

/// Holds what it reads to its end.
impl Source for Op<'_> {
    fn fs(&self) -> &Ext4 {
        self.fs
    }

    fn with<T>(&mut self, place: Block, tag: Tag, look: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let id = self.buffer(place, tag)?;
        Ok(look(self.txn.data(id)))
    }
}
