//! Taking blocks out of a fork.

use std::ops::Range;

use vfs::{FileType, Result};

use super::change::without;
use super::convert::subtract_blocks;
use super::{Extent, check, lookup, may_share};
use crate::alloc::Owner;
use crate::format::address::{Block, FileBlock};
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::op::Op;

impl Op<'_> {
    /// Unmaps blocks of a fork and gives them back when the operation commits. Holes in the range are
    /// passed over. Blocks of metadata are forgotten. Blocks that other files have, too, stay theirs.
    pub(crate) fn unmap(
        &mut self,
        handle: &mut Handle,
        fork: Fork,
        range: Range<FileBlock>,
    ) -> Result<()> {
        let mut budget = u32::MAX;
        self.unmap_some(handle, fork, range, &mut budget).map(|_| ())
    }

    /// As [`Op::unmap`], from the end of the range backwards, with at most `budget` extents (of metadata,
    /// blocks; of what is shared, runs that as many files have), which is lowered by what was done. Whether
    /// that was all.
    pub(crate) fn unmap_some(
        &mut self,
        handle: &mut Handle,
        fork: Fork,
        range: Range<FileBlock>,
        budget: &mut u32,
    ) -> Result<bool> {
        let mut end = range.end.min(FileBlock::END);
        while range.start < end {
            let (extent, _) = lookup(self, handle, fork, FileBlock(end.0 - 1))?;
            let Some(extent) = extent else { break };
            let Some(part) = extent.part(range.start, end) else { break };
            if *budget == 0 {
                return Ok(false);
            }
            check(self, handle, fork, &extent)?;
            let len = self.within_budget(handle, fork, &part, budget)?;
            let from = FileBlock(part.end().0 - len);
            let part = part.part(from, part.end()).unwrap_or(part);
            self.unmap_part(handle, fork, &extent, &part)?;
            end = part.offset;
        }
        Ok(true)
    }

    /// How many of the last blocks of an extent `budget` is enough for, which is lowered.
    fn within_budget(
        &mut self,
        handle: &Handle,
        fork: Fork,
        part: &Extent,
        budget: &mut u32,
    ) -> Result<u64> {
        if is_metadata(handle, fork) {
            let len = part.len.min(u64::from(*budget));
            *budget -= len as u32;
            return Ok(len);
        }
        if may_share(handle) {
            return self.alike_at_end(part.start, part.len, budget);
        }
        *budget -= 1;
        Ok(part.len)
    }

    fn unmap_part(
        &mut self,
        handle: &mut Handle,
        fork: Fork,
        extent: &Extent,
        part: &Extent,
    ) -> Result<()> {
        self.replace_extents(handle, fork, &[*extent], &without(extent, part))?;
        subtract_blocks(handle, part.len)?;
        if is_metadata(handle, fork) {
            let Block(first) = self.fs.volume.geometry.device_block(part.start);
            (first..first + part.len).for_each(|block| self.txn.forget(block));
        }
        let (offset, unwritten) = (part.offset.0, part.unwritten);
        let owner = Owner::Fork { ino: handle.ino(), fork, offset, unwritten };
        self.free_extent(part.start, part.len as u32, owner);
        Ok(())
    }
}

/// Whether the blocks of a fork are metadata, which the engine knows.
fn is_metadata(handle: &Handle, fork: Fork) -> bool {
    fork == Fork::Attr || handle.inode.file_type() != Some(FileType::Regular)
}
