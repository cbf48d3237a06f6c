//! Implements the traits of the operation core's data path for ext4.
//!
//! A block map cannot represent allocated, unwritten blocks. A file without extents therefore gets zeroed blocks
//! instead of unwritten ones. (The kernel does not support this case, and programs then write the zeros themselves.)
//! Past its size such a file cannot have blocks, because checkers report written blocks there as damage.

use std::ops::Range;

use operations::Outcome;
use operations::data::{
    ChangeFiles, FileHandle, LogicalBlock, MapFiles, ReadFiles, Want, require_regular,
};
use vfs::{AllocateMode, Error, Ino, Result};

use super::unpack::Unpacked;
use super::{CHANGES_PER_OP_MAX, LARGE_FILE_FROM};
use crate::Ext4Core;
use crate::format::address::{Block, FileBlock};
use crate::format::features::RoCompat;
use crate::format::indirect::IndirectPath;
use crate::format::inode::flags;
use crate::inode::Handle;
use crate::map::{self, FILE_BLOCKS_MAX, MappedRun, Mapping, Piece};
use crate::op::Op;

impl FileHandle for Handle {
    fn size(&self) -> u64 {
        self.inode.size()
    }

    fn set_size(&mut self, size: u64) {
        self.inode.set_size(size);
    }
}

impl ReadFiles for Ext4Core {
    type Block = Block;

    fn block_size_log(&self) -> u32 {
        self.volume.geometry.block_size_log
    }

    fn byte_of(&self, block: Block) -> u64 {
        self.volume.geometry.byte_of(block)
    }

    fn find_run(&self, file: &Handle, at: LogicalBlock) -> Result<MappedRun> {
        match file_block(at) {
            Some(block) => map::run_at(&mut &*self, file, block),
            None => Ok(BEYOND),
        }
    }

    /// Without this limit, a pointer block that refers to itself would produce files of terabytes. There is no limit
    /// for images with shared blocks.
    fn check_mapped(&self, file: &Handle, mapped: u64) -> Result<()> {
        let geometry = &self.volume.geometry;
        let is_bounded = !self.volume.sb.features.ro_compat(RoCompat::SHARED_BLOCKS);
        if is_bounded && mapped > geometry.blocks_count << geometry.block_size_log {
            return Err(file.corrupt("block map", "it has more blocks than the file system"));
        }
        Ok(())
    }
}

/// The range past the last possible block of a file, whatever its size field contains.
const BEYOND: MappedRun = MappedRun { place: Mapping::Hole, len: u64::MAX };

/// Converts a block number, if a file can have that block.
fn file_block(at: LogicalBlock) -> Option<FileBlock> {
    u32::try_from(at.0).ok().map(FileBlock)
}

/// Converts the end of a range of blocks. The largest number means the end of the file.
fn end_block(at: LogicalBlock) -> u32 {
    u32::try_from(at.0).unwrap_or(u32::MAX)
}

impl MapFiles for Ext4Core {
    fn run_at(&self, op: &mut Op<'_>, file: &Handle, at: LogicalBlock) -> Outcome<MappedRun> {
        match file_block(at) {
            Some(block) => op.run_at(file, block),
            None => Ok(BEYOND),
        }
    }

    fn provide(
        &self,
        op: &mut Op<'_>,
        file: &mut Handle,
        at: LogicalBlock,
        limit: LogicalBlock,
        want: Want,
    ) -> Outcome<Piece> {
        let block = file_block(at).ok_or(Error::FileTooLarge)?;
        op.provide(file, block, end_block(limit), want)
    }

    fn remove(
        &self,
        op: &mut Op<'_>,
        file: &mut Handle,
        blocks: Range<LogicalBlock>,
        budget: &mut u32,
    ) -> Outcome<bool> {
        op.remove_blocks(file, end_block(blocks.start)..end_block(blocks.end), budget)
    }

    fn zero_at_end(&self, op: &mut Op<'_>, bytes: Range<u64>) {
        op.zeroed_runs.push(bytes);
    }

    fn maps_unwritten(&self, file: &Handle) -> bool {
        file.has_flag(flags::EXTENTS)
    }

    /// Within a cluster, new blocks may be blocks that the file had before.
    fn may_get_back_own(&self) -> bool {
        self.volume.geometry.cluster_blocks_log > 0
    }
}

impl ChangeFiles for Ext4Core {
    type Apart = Option<Unpacked>;

    fn changes_per_op(&self) -> u32 {
        CHANGES_PER_OP_MAX
    }

    fn size_max(&self) -> u64 {
        FILE_BLOCKS_MAX << self.volume.geometry.block_size_log
    }

    fn load_file(&self, ino: Ino) -> Result<Handle> {
        let mut file = self.load(ino)?;
        if self.resume_truncation(&file)? {
            file = self.load(ino)?;
        }
        require_regular(&file)?;
        if file.has_flag(flags::ENCRYPT) {
            return Err(Error::encrypted_read_only());
        }
        if file.has_flag(flags::VERITY) {
            return Err(Error::NotPermitted(
                "the contents are protected by fs-verity; copy the file and change the copy",
            ));
        }
        Ok(file)
    }

    fn blocks_of(&self, file: &Handle, offset: u64, len: u64) -> Result<Range<LogicalBlock>> {
        let geometry = &self.volume.geometry;
        let end = offset.checked_add(len).ok_or(Error::FileTooLarge)?;
        let last = end.div_ceil(u64::from(geometry.block_size()));
        // The largest block number is also used as "none", so a file cannot use it.
        let end_block = u32::try_from(last).map_err(|_| Error::FileTooLarge)?;
        let in_map = |block| IndirectPath::to(FileBlock(block), geometry.block_size()).is_some();
        let is_mapped = self.maps_extents(file) || end_block == 0 || in_map(end_block - 1);
        if !is_mapped || (end >= LARGE_FILE_FROM && !self.volume.large_file) {
            return Err(Error::FileTooLarge);
        }
        Ok(LogicalBlock(offset >> geometry.block_size_log)..LogicalBlock(last))
    }

    fn check_space(&self, file: &Handle, end: u64, mode: AllocateMode) -> Result<()> {
        if mode.keeps_size() && end > file.inode.size() && !self.maps_extents(file) {
            let advice = "write to the file, or turn the feature extents on for new files";
            let what = "space past the end of a file without extents";
            return Err(Error::unsupported(what, advice));
        }
        Ok(())
    }

    fn can_overwrite(&self, file: &Handle, _bytes: Range<u64>) -> Result<bool> {
        Ok(!file.has_flag(flags::INLINE_DATA))
    }

    fn read_apart(&self, file: &Handle) -> Result<Option<Unpacked>> {
        self.unpack(file)
    }

    fn use_apart(
        &self,
        op: &mut Op<'_>,
        file: &mut Handle,
        apart: &Option<Unpacked>,
    ) -> Outcome<()> {
        match apart {
            Some(unpacked) => op.use_unpacked(file, unpacked),
            None => Ok(()),
        }
    }

    fn note_cut(&self, op: &mut Op<'_>, file: &mut Handle, is_done: bool) {
        op.note_truncation(file, is_done);
    }

    /// The file stays an orphan until the last operation, so recovery after a crash completes the truncation. A failure
    /// here therefore does not fail the truncation.
    fn finish_truncation(&self, ino: Ino, _size: u64) -> Result<()> {
        self.end_truncation_or_note(ino);
        Ok(())
    }

    fn stage_contents(
        &self,
        op: &mut Op<'_>,
        file: Handle,
        before: &Handle,
        apart: &Option<Unpacked>,
    ) {
        match apart {
            Some(unpacked) => op.stage_with_tail(file, unpacked.tail.clone()),
            None => op.stage_if_changed(file, before),
        }
    }
}

impl Ext4Core {
    /// Returns whether a file has an extent tree, or will have one once it gets blocks.
    fn maps_extents(&self, file: &Handle) -> bool {
        file.has_flag(flags::EXTENTS) || file.has_flag(flags::INLINE_DATA) && self.volume.extents
    }
}
