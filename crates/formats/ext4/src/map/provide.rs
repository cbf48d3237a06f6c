//! Reading and changing a file's mapping, for both forms of maps.

use operations::Outcome;
use std::ops::Range;

use engine::Corruption;
use vfs::{Error, FileType, Result};

use crate::Ext4Core;
use crate::file;
use crate::format::address::{Block, FileBlock, Group};
use crate::format::inode::flags;
use crate::inode::Handle;
use crate::map::extent::ExtentTree;
use crate::map::extent::step::FILE_BLOCKS_MAX;
use crate::map::indirect::BlockMap;
use crate::map::{MappedRun, Mapping, Piece, Want, run_at};
use crate::op::Op;

impl Ext4Core {
    /// Returns whether `i_block` maps blocks.
    pub(crate) fn has_map(&self, file: &Handle) -> Result<bool> {
        if file.has_flag(flags::INLINE_DATA) {
            return Ok(false);
        }
        Ok(match file.file_type()? {
            FileType::Regular | FileType::Directory => true,
            FileType::Symlink => !file::is_fast(self, file),
            _ => false,
        })
    }
}

impl Op<'_> {
    /// Returns the run of a file that starts at `block`. A neighbouring run may continue it.
    pub(crate) fn run_at(&mut self, file: &Handle, block: FileBlock) -> Outcome<MappedRun> {
        Ok(run_at(self, file, block)?)
    }

    /// Returns the device block of a file block if it is mapped and written.
    pub(crate) fn find_block(&mut self, file: &Handle, block: FileBlock) -> Outcome<Option<Block>> {
        Ok(match self.run_at(file, block)?.place {
            Mapping::Written(found) => Some(found),
            Mapping::Unwritten(_) | Mapping::Hole => None,
        })
    }

    /// Returns the device block of a directory block, which must be mapped.
    pub(crate) fn dir_block(&mut self, dir: &Handle, block: FileBlock) -> Outcome<Block> {
        match self.find_block(dir, block)? {
            Some(found) => Ok(found),
            None => Err(Corruption::new("directory", format!("block {block} is missing"))
                .of_inode(dir.ino().0)
                .into()),
        }
    }

    /// Ensures that a file has `block`, and following contiguous blocks up to `limit`, in the requested state. New
    /// blocks continue the file's preceding blocks if possible. Only the map is changed; [`Piece::is_exposed`] reports
    /// whether the caller must write to the device.
    pub(crate) fn provide(
        &mut self,
        file: &mut Handle,
        block: FileBlock,
        limit: u32,
        want: Want,
    ) -> Outcome<Piece> {
        if file.has_flag(flags::EXTENTS) {
            ExtentTree::new(self, file).provide(block, limit, want)
        } else {
            self.check_map_allowed(file)?;
            BlockMap::new(self, file).provide(block, limit)
        }
    }

    /// Allocates and maps blocks for the hole `block..block + len` of a file. Unless they are `unwritten`, the caller
    /// writes them.
    pub(crate) fn fill_hole(
        &mut self,
        file: &mut Handle,
        block: FileBlock,
        len: u32,
        unwritten: bool,
    ) -> Outcome<()> {
        let want = if unwritten { Want::Allocated } else { Want::Written };
        let limit = block.checked_plus(len).ok_or(Error::FileTooLarge)?.0;
        let mut at = block.0;
        while at < limit {
            at += self.provide(file, FileBlock(at), limit, want)?.len as u32;
        }
        Ok(())
    }

    /// Unmaps blocks of a file, from the end of the range backwards, and frees them together with map blocks that are
    /// no longer needed. A range that ends with `u32::MAX` extends to the end of the file.
    ///
    /// `budget` limits what one operation changes: freed runs plus metadata blocks. It is reduced by the work done.
    /// Returns `false` if it was too small; the file is then consistent, and another operation can continue. A budget
    /// of at least 1 guarantees progress.
    ///
    /// Cutting the middle out of an extent may split a node and thus fail with `NoSpace`. Cutting to the end of the
    /// file cannot.
    pub(crate) fn remove_blocks(
        &mut self,
        file: &mut Handle,
        blocks: Range<u32>,
        budget: &mut u32,
    ) -> Outcome<bool> {
        if !self.fs.has_map(file)? {
            return Ok(true);
        }
        let end = if blocks.end == u32::MAX { FILE_BLOCKS_MAX } else { u64::from(blocks.end) };
        if file.has_flag(flags::EXTENTS) {
            ExtentTree::new(self, file).remove(u64::from(blocks.start), end, budget)
        } else if file.inode.i_block().iter().all(|&byte| byte == 0) {
            Ok(true)
        } else {
            self.check_map_allowed(file)?;
            BlockMap::new(self, file).remove(u64::from(blocks.start)..end, budget)
        }
    }

    /// A block map does not support clusters: with `bigalloc`, all files have extents.
    fn check_map_allowed(&self, file: &Handle) -> Outcome<()> {
        if self.fs.volume.geometry.cluster_blocks_log == 0 {
            return Ok(());
        }
        Err(file.corrupt("inode", "it has a block map, which clusters do not support").into())
    }

    /// Returns whether the journal may contain data blocks of a file, so that they must be revoked.
    fn is_journaled(file: &Handle) -> bool {
        !matches!(file.inode.file_type(), Some(FileType::Regular))
            || file.has_flag(flags::EA_INODE | flags::JOURNAL_DATA)
    }

    /// Returns the number of blocks of a run that can be freed within `budget`.
    pub(crate) fn freed_at_once(&self, file: &Handle, budget: u32) -> u32 {
        if Self::is_journaled(file) { budget } else { u32::MAX }
    }

    /// Returns the cost of freeing a run of `len` blocks in units of a budget.
    pub(crate) fn cost_of_freeing(&self, file: &Handle, len: u32) -> u32 {
        if Self::is_journaled(file) { len } else { 1 }
    }

    /// Frees a run of a file's data in whole clusters. Returns the cost in units of a budget.
    pub(crate) fn free_data(&mut self, file: &mut Handle, start: Block, len: u32) -> Outcome<u32> {
        let cost = self.forget_data(file, start, len);
        self.free_blocks(file, start, len)?;
        Ok(cost)
    }

    /// Forgets removed data blocks of a file, so that they are not written any more. Returns the cost of freeing them
    /// in units of a budget.
    pub(crate) fn forget_data(&mut self, file: &Handle, start: Block, len: u32) -> u32 {
        if Self::is_journaled(file) {
            for step in 0..u64::from(len) {
                self.txn.forget(start.plus(step).0);
            }
        }
        self.cost_of_freeing(file, len)
    }

    /// Returns the goal for an inode's metadata blocks: its group.
    pub(crate) fn metadata_goal(&self, file: &Handle) -> Block {
        let geometry = &self.fs.volume.geometry;
        let group = geometry.place_of(file.ino()).map_or(Group(0), |(group, _)| group);
        geometry.first_block(group)
    }

    /// Subtracts clusters from an inode's block count.
    pub(crate) fn subtract_clusters(&mut self, file: &mut Handle, count: u32) -> Outcome<()> {
        let block_size = self.fs.volume.geometry.block_size();
        let units = self.cluster_units(count);
        let counted = file.inode.blocks_512(block_size);
        let Some(left) = counted.checked_sub(units) else {
            let damage = Corruption::new("inode", "it has more blocks than counted");
            let damage =
                damage.of_inode(file.ino().0).mismatch(format!("{units} or more"), counted);
            return Err(damage.into());
        };
        file.inode.set_blocks_512(left, block_size);
        Ok(())
    }

    /// Converts clusters to the unit of inode block counts, 512 bytes.
    fn cluster_units(&self, count: u32) -> u64 {
        let geometry = &self.fs.volume.geometry;
        (u64::from(count) << geometry.cluster_blocks_log) * u64::from(geometry.block_size() / 512)
    }

    /// Adds clusters to an inode's block count.
    pub(crate) fn add_clusters(&mut self, file: &mut Handle, count: u32) -> Outcome<()> {
        let block_size = self.fs.volume.geometry.block_size();
        let units = file.inode.blocks_512(block_size) + self.cluster_units(count);
        let huge = self.fs.volume.huge_file || units <= u64::from(u32::MAX);
        if !huge || !file.inode.set_blocks_512(units, block_size) {
            return Err(Error::FileTooLarge.into());
        }
        Ok(())
    }
}
