//! Source of verified blocks: the cache, or an operation that holds the blocks that it reads.
//!
//! Readers and operations find file blocks and names by the same code with the same checks. Only an operation sees the
//! blocks that it has changed, and must read them through its transaction: a block that a transaction holds cannot be
//! read from the cache.

use engine::{Note, Tag};
use vfs::Result;

use crate::Ext4Core;
use crate::format::address::{Block, FileBlock};
use crate::inode::Handle;
use crate::map::{self, Mapping};
use crate::op::Op;

/// Source of the blocks of file maps and directories.
pub(crate) trait BlockSource {
    /// Returns the file system.
    fn fs(&self) -> &Ext4Core;

    /// Calls `look` with a metadata block that was verified as `tag` requires.
    fn with<T>(&mut self, place: Block, tag: Tag, look: impl FnOnce(&[u8]) -> T) -> Result<T> {
        self.with_noted(place, tag, |bytes, _| look(bytes))
    }

    /// Like [`BlockSource::with`], with the note of the block.
    fn with_noted<T>(
        &mut self,
        place: Block,
        tag: Tag,
        look: impl FnOnce(&[u8], Option<&Note>) -> T,
    ) -> Result<T>;

    /// Returns the device block of a directory block, or `None` for a hole.
    fn place(&mut self, dir: &Handle, block: FileBlock) -> Result<Option<Block>>
    where
        Self: Sized,
    {
        Ok(match map::run_at(self, dir, block)?.place {
            Mapping::Written(block) => Some(block),
            Mapping::Unwritten(_) | Mapping::Hole => None,
        })
    }
}

/// Reads blocks from the cache and holds none of them.
impl BlockSource for &Ext4Core {
    fn fs(&self) -> &Ext4Core {
        self
    }

    fn with_noted<T>(
        &mut self,
        place: Block,
        tag: Tag,
        look: impl FnOnce(&[u8], Option<&Note>) -> T,
    ) -> Result<T> {
        let block = self.block(place, tag)?;
        Ok(look(&block, block.note()))
    }
}

/// Holds each block that it reads until the end of the operation.
impl BlockSource for Op<'_> {
    fn fs(&self) -> &Ext4Core {
        self.fs
    }

    fn with_noted<T>(
        &mut self,
        place: Block,
        tag: Tag,
        look: impl FnOnce(&[u8], Option<&Note>) -> T,
    ) -> Result<T> {
        let id = self.buffer(place, tag)?;
        Ok(look(self.txn.data(id), self.txn.note(id)))
    }
}
