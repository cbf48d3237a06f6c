//! Unmapping and freeing blocks of a fork.

use operations::Outcome;
use std::ops::Range;

use vfs::FileType;

use super::change::without;
use super::fork::ForkMap;
use super::{Extent, may_share};
use crate::format::address::{Block, FileBlock, FsBlock};
use crate::format::inode::{Fork, ForkFormat};
use crate::inode::Handle;
use crate::op::Op;

impl Op<'_> {
    /// Unmaps blocks of a fork, and frees them when the operation commits. Skips holes in the range. Forgets metadata
    /// blocks. Shared blocks lose one reference.
    pub(crate) fn unmap(
        &mut self,
        handle: &mut Handle,
        fork: Fork,
        range: Range<FileBlock>,
    ) -> Outcome<()> {
        let mut budget = u32::MAX;
        self.unmap_some(handle, fork, range, &mut budget).map(|_| ())
    }

    /// Like [`Op::unmap`], from the end of the range backwards, until `budget` is used up, which is reduced. An extent
    /// costs 1. Exceptions: each block of metadata costs 1, and each run with one reference count in files with shared
    /// blocks. Returns whether the whole range is done.
    pub(crate) fn unmap_some(
        &mut self,
        handle: &mut Handle,
        fork: Fork,
        range: Range<FileBlock>,
        budget: &mut u32,
    ) -> Outcome<bool> {
        self.map(handle, fork).unmap_some(range, budget)
    }

    /// Frees the data fork of an inode being freed, until `budget` is used up (see [`Op::unmap_some`]). Returns whether
    /// that was all.
    pub(crate) fn drop_data(&mut self, handle: &mut Handle, budget: &mut u32) -> Outcome<bool> {
        match handle.inode.format() {
            ForkFormat::Local | ForkFormat::Device | ForkFormat::MetaBtree => Ok(true),
            ForkFormat::Extents | ForkFormat::Btree => {
                self.unmap_some(handle, Fork::Data, FileBlock(0)..FileBlock::END, budget)
            }
        }
    }
}

impl ForkMap<'_, '_> {
    fn unmap_some(&mut self, range: Range<FileBlock>, budget: &mut u32) -> Outcome<bool> {
        if let Some(realtime) = self.realtime()? {
            return self.unmap_realtime(&realtime, range, budget);
        }
        let mut end = range.end.min(FileBlock::END);
        while range.start < end {
            let (extent, _) = self.lookup(FileBlock(end.0 - 1))?;
            let Some(extent) = extent else { break };
            let Some(part) = extent.part(range.start, end) else { break };
            if *budget == 0 {
                return Ok(false);
            }
            self.check(&extent)?;
            let len = self.within_budget(&part, budget)?;
            let from = FileBlock(part.end().0 - len);
            let part = part.part(from, part.end()).unwrap_or(part);
            self.unmap_part(&extent, &part)?;
            end = part.offset;
        }
        Ok(true)
    }

    /// Returns how many of the last blocks of an extent are within `budget`, and reduces it.
    pub(super) fn within_budget(&mut self, part: &Extent, budget: &mut u32) -> Outcome<u64> {
        if self.is_metadata() {
            let len = part.len.min(u64::from(*budget));
            *budget -= len as u32;
            return Ok(len);
        }
        if may_share(self.handle) {
            let start = self.device_address(part)?;
            return self.op.alike_at_end(start, part.len, budget);
        }
        *budget -= 1;
        Ok(part.len)
    }

    pub(super) fn unmap_part(&mut self, extent: &Extent, part: &Extent) -> Outcome<()> {
        self.replace_extents(&[*extent], &without(extent, part))?;
        self.subtract_mapped(part.len)?;
        if self.is_metadata() {
            let Block(first) = self.op.fs.volume.geometry.device_block(part.start);
            (first..first + part.len).for_each(|block| self.op.txn.forget(block));
        }
        self.free_part(part)
    }

    /// Frees blocks that are not mapped any more when the operation commits.
    pub(super) fn free_part(&mut self, part: &Extent) -> Outcome<()> {
        let owner = self.owner_of(part);
        let start = self.device_address(part)?;
        self.op.free_extent(start, part.len as u32, owner);
        Ok(())
    }

    /// Returns the address of an extent's blocks that distinguishes the devices.
    pub(super) fn device_address(&self, part: &Extent) -> Outcome<FsBlock> {
        let Some(realtime) = self.realtime()? else { return Ok(part.start) };
        match realtime.device_block(part.start, part.len) {
            Some(block) => Ok(FsBlock::on_realtime(block)),
            None => Err(self.handle.corrupt("extent", "an invalid address").into()),
        }
    }

    /// Returns whether the blocks of the fork are metadata, which are changed through the engine.
    fn is_metadata(&self) -> bool {
        self.fork == Fork::Attr || self.handle.inode.file_type() != Some(FileType::Regular)
    }
}
