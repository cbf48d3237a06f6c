//! Block maps of ext2 and ext3: twelve direct blocks, then one, two and three levels of pointer blocks.
//!
//! Source: kernel Documentation/filesystems/ext4/blockmap.rst. A map cannot represent allocated, unwritten blocks, so
//! an operation must write every block that it maps.

mod remove;

use operations::Outcome;
use std::ops::Range;

use vfs::Error;

use crate::format::address::{Block, FileBlock};
use crate::format::indirect::{DIRECT_COUNT, IndirectPath, pointer};
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::map::Mapping;
use crate::map::extent::step::check_blocks;
use crate::map::{Piece, Was};
use crate::op::Op;

/// A held block of pointers, or `None` for the pointers in `i_block`.
type Holder = Option<engine::BufferId>;

/// Returns the byte range of some slots.
fn slots_range(first: u16, count: u32) -> Range<usize> {
    let at = usize::from(first) * 4;
    at..at + count as usize * 4
}

/// Returns a written piece. A block map has no other state.
fn piece(start: Block, len: u32, was: Was) -> Piece {
    Piece { start, len: len.into(), was, written: true, copied_from: None }
}

/// Block map of a file that an operation changes. The file's inode is locked.
pub(crate) struct BlockMap<'o, 'a> {
    op: &'o mut Op<'a>,
    file: &'o mut Handle,
}

impl<'o, 'a> BlockMap<'o, 'a> {
    /// Returns the map of a file without extents.
    pub(crate) fn new(op: &'o mut Op<'a>, file: &'o mut Handle) -> Self {
        Self { op, file }
    }
}

impl BlockMap<'_, '_> {
    /// Implements [`Op::provide`] for a file with a block map.
    pub(crate) fn provide(&mut self, block: FileBlock, limit: u32) -> Outcome<Piece> {
        let run = self.op.run_at(self.file, block)?;
        let len = run.len.min(u64::from(limit - block.0)) as u32;
        if let Mapping::Written(start) = run.place {
            return Ok(piece(start, len, Was::Written));
        }
        let goal = self.goal_after(block)?;
        let path = IndirectPath::to(block, self.op.fs.volume.geometry.block_size());
        let path = path.ok_or(Error::FileTooLarge)?;
        let (holder, slot) = self.holder_of(path.indexes())?;
        let slots = match holder {
            Some(_) => self.op.fs.volume.block_size() as u32 / 4,
            None => DIRECT_COUNT,
        };
        let len = len.min(slots - u32::from(slot));
        let (start, len) = self.op.allocate_clusters(goal, len)?;
        let end = start.plus(u64::from(len));
        if end.0 > u64::from(u32::MAX) {
            return Err(Error::NoSpace.into());
        }
        self.op.add_clusters(self.file, len)?;
        let bytes = self.edit_pointers(holder, slots_range(slot, len));
        for (bytes, number) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(start.0 as u32..) {
            *bytes = number.to_le_bytes();
        }
        Ok(piece(start, len, Was::Hole))
    }

    /// Returns the block after the file's block before `block`, or else a block of its group.
    fn goal_after(&mut self, block: FileBlock) -> Outcome<Block> {
        if let Some(before) = block.0.checked_sub(1)
            && let Some(found) = self.op.find_block(self.file, FileBlock(before))?
        {
            return Ok(found.plus(1));
        }
        Ok(self.op.metadata_goal(self.file))
    }

    /// Returns the pointer block at the end of a path, and the slot in it. Creates missing pointer blocks.
    fn holder_of(&mut self, path: &[u16]) -> Outcome<(Holder, u16)> {
        let (&last, above) = path.split_last().unwrap_or((&0, &[]));
        let mut holder = None;
        for &slot in above {
            let below = match pointer(self.pointers(holder), slot) {
                Some(block) => self.enter_pointers(block)?,
                None => self.new_pointers(holder, slot)?,
            };
            holder = Some(below);
        }
        Ok((holder, last))
    }

    fn pointers(&self, holder: Holder) -> &[u8] {
        match holder {
            Some(id) => self.op.txn.data(id),
            None => self.file.inode.i_block(),
        }
    }

    fn edit_pointers(&mut self, holder: Holder, range: Range<usize>) -> &mut [u8] {
        match holder {
            Some(id) => self.op.txn.edit(id, range),
            None => &mut self.file.inode.i_block_mut()[range],
        }
    }

    fn enter_pointers(&mut self, block: Block) -> Outcome<engine::BufferId> {
        check_blocks(&self.op.fs.volume, self.file, block, 1)?;
        Ok(self.op.buffer(block, BlockKind::Indirect.of(self.file.owner))?)
    }

    fn new_pointers(&mut self, holder: Holder, slot: u16) -> Outcome<engine::BufferId> {
        let goal = self.op.metadata_goal(self.file);
        let (block, _) = self.op.allocate_clusters(goal, 1)?;
        let number = u32::try_from(block.0).map_err(|_| Error::NoSpace)?;
        self.op.add_clusters(self.file, 1)?;
        self.edit_pointers(holder, slots_range(slot, 1)).copy_from_slice(&number.to_le_bytes());
        Ok(self.op.txn.create(block.0, BlockKind::Indirect.of(self.file.owner))?)
    }
}
