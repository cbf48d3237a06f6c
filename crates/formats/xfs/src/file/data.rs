//! Implements the traits of the operation core's data path.

use std::ops::Range;

use disk::DeviceRole;
use operations::data::{
    ChangeFiles, FileHandle, LogicalBlock, MapFiles, ReadFiles, Want, cut_to, require_regular,
};
use operations::{Outcome, RunOperations};
use vfs::{Error, Ino, Result};

use super::{SIZE_MAX, realtime};
use crate::XfsCore;
use crate::format::address::{FileBlock, FsBlock};
use crate::format::geometry::Geometry;
use crate::format::inode::{Fork, flags, flags2};
use crate::inode::Handle;
use crate::map::{self, Piece, Run};
use crate::op::Op;

impl FileHandle for Handle {
    fn size(&self) -> u64 {
        self.inode.size()
    }

    fn set_size(&mut self, size: u64) {
        self.inode.set_size(size);
    }
}

impl ReadFiles for XfsCore {
    type Block = FsBlock;

    fn block_size_log(&self) -> u32 {
        self.volume.geometry.block_log.into()
    }

    fn byte_of(&self, block: FsBlock) -> u64 {
        let geometry = &self.volume.geometry;
        match block.realtime() {
            None => geometry.byte_of(geometry.device_block(block)),
            Some(block) => DeviceRole::Realtime.start() + (block << geometry.block_log),
        }
    }

    fn find_run(&self, file: &Handle, at: LogicalBlock) -> Result<Run> {
        let run = map::run_at(&mut &*self, file, Fork::Data, file_block(at))?;
        realtime::on_device(self, file, run)
    }
}

/// Converts a logical block to a block of a file. Blocks past the last one that a file can have are holes.
fn file_block(at: LogicalBlock) -> FileBlock {
    FileBlock(at.0)
}

impl MapFiles for XfsCore {
    fn run_at(&self, op: &mut Op<'_>, file: &Handle, at: LogicalBlock) -> Outcome<Run> {
        let run = map::run_at(op, file, Fork::Data, file_block(at))?;
        Ok(realtime::on_device(self, file, run)?)
    }

    fn provide(
        &self,
        op: &mut Op<'_>,
        file: &mut Handle,
        at: LogicalBlock,
        limit: LogicalBlock,
        want: Want,
    ) -> Outcome<Piece> {
        let piece = op.provide(file, file_block(at), file_block(limit), want)?;
        Ok(realtime::piece_on_device(self, file, piece)?)
    }

    fn remove(
        &self,
        op: &mut Op<'_>,
        file: &mut Handle,
        blocks: Range<LogicalBlock>,
        budget: &mut u32,
    ) -> Outcome<bool> {
        let blocks = file_block(blocks.start)..file_block(blocks.end);
        op.unmap_some(file, Fork::Data, blocks, budget)
    }

    fn zero_at_end(&self, op: &mut Op<'_>, bytes: Range<u64>) {
        op.zeroed_runs.push(bytes);
    }

    fn may_share(&self, file: &Handle) -> bool {
        map::may_share(file)
    }
}

impl ChangeFiles for XfsCore {
    type Apart = ();

    fn changes_per_op(&self) -> u32 {
        self.changes_per_op()
    }

    fn size_max(&self) -> u64 {
        SIZE_MAX
    }

    fn load_file(&self, ino: Ino) -> Result<Handle> {
        let file = self.load_ordinary(ino)?;
        require_regular(&file)?;
        if map::is_realtime(&file, Fork::Data) {
            realtime::check_present(self, &file)?;
        }
        Ok(file)
    }

    fn check_end(&self, offset: u64, len: u64) -> Result<()> {
        blocks_of(&self.volume.geometry, offset, len).map(drop)
    }

    fn blocks_of(&self, _file: &Handle, offset: u64, len: u64) -> Result<Range<LogicalBlock>> {
        blocks_of(&self.volume.geometry, offset, len)
    }

    /// Blocks shared with other files must not be overwritten.
    fn can_overwrite(&self, file: &Handle, bytes: Range<u64>) -> Result<bool> {
        Ok(!map::may_share(file) || self.has_own(file, bytes)?)
    }

    fn read_apart(&self, _file: &Handle) -> Result<()> {
        Ok(())
    }

    fn note_preallocated(&self, file: &mut Handle) {
        file.inode.set_flags(file.inode.flags() | flags::PREALLOC);
    }

    fn note_cut(&self, _op: &mut Op<'_>, file: &mut Handle, _is_done: bool) {
        file.inode.set_flags(file.inode.flags() & !flags::PREALLOC);
        if file.inode.extents(Fork::Data) == 0 {
            // A file without blocks shares none.
            file.inode.set_flags2(file.inode.flags2() & !flags2::REFLINK);
        }
    }

    /// A failure leaves space past the end, which the format allows.
    fn finish_truncation(&self, ino: Ino, size: u64) -> Result<()> {
        let mut is_done = false;
        while !is_done {
            let before = self.load_file(ino)?;
            is_done = self.atomically_freeing(|op| cut_to(self, op, (&before, &()), size, None))?;
        }
        Ok(())
    }

    fn stage_contents(&self, op: &mut Op<'_>, file: Handle, before: &Handle, _apart: &()) {
        op.stage_if_changed(file, before);
    }
}

/// Returns the blocks of a file that contain the bytes `offset..offset + len`, or `FileTooLarge` past the largest size.
fn blocks_of(geometry: &Geometry, offset: u64, len: u64) -> Result<Range<LogicalBlock>> {
    let end = offset.checked_add(len).filter(|end| *end <= SIZE_MAX).ok_or(Error::FileTooLarge)?;
    let last = end.div_ceil(1 << geometry.block_log);
    if last > FileBlock::END.0 {
        return Err(Error::FileTooLarge);
    }
    Ok(LogicalBlock(offset >> geometry.block_log)..LogicalBlock(last))
}
