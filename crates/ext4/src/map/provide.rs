//! Which blocks of the device hold which blocks of a file, whatever the form of the map.

use operation::Outcome;
use std::ops::Range;

use transaction::Corruption;
use vfs::{Error, FileType, Result};

use crate::Ext4;
use crate::file;
use crate::format::address::{Block, FileBlock, Group};
use crate::format::inode::flags;
use crate::inode::Handle;
use crate::map::extent::ExtentTree;
use crate::map::extent::step::FILE_BLOCKS_MAX;
use crate::map::indirect::BlockMap;
use crate::map::{Piece, Place, Run, Want, run_at};
use crate::op::Op;

impl Ext4 {
    /// Whether `i_block` maps blocks.
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
    /// The run of a file that starts at `block`. Neighbouring runs may continue it.
    pub(crate) fn run_at(&mut self, file: &Handle, block: FileBlock) -> Outcome<Run> {
        Ok(run_at(self, file, block)?)
    }

    /// The device block of a block of a file, if it has one that was written.
    pub(crate) fn find_block(&mut self, file: &Handle, block: FileBlock) -> Outcome<Option<Block>> {
        Ok(match self.run_at(file, block)?.place {
            Place::Written(found) => Some(found),
            Place::Unwritten(_) | Place::Hole => None,
        })
    }

    /// The device block of a block of a directory, which must have one.
    pub(crate) fn dir_block(&mut self, dir: &Handle, block: FileBlock) -> Outcome<Block> {
        match self.find_block(dir, block)? {
            Some(found) => Ok(found),
            None => Err(Corruption::new("directory", format!("no block {block}"))
                .of_inode(dir.ino().0)
                .into()),
        }
    }

    /// Sees to it that a file has `block`, and more up to `limit` as far as they lie together, in the
    /// state that is wanted. What is new is taken contiguous with what the file has before. Only the
    /// map is changed: [`Piece::is_exposed`] says what must be written to the device.
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

    /// Takes and maps blocks for the hole `block..block + len` of a file. Unless they are
    /// `unwritten`, the caller writes them.
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

    /// Unmaps blocks of a file, from the end of the range backwards, and frees them and what of the
    /// map is no longer needed. A range that ends with `u32::MAX` goes to the end of the file.
    ///
    /// `budget` counts what one operation may change: runs that are freed and blocks of metadata. It
    /// is lowered by what was done, and if it was not enough, the answer is false: the file is sound,
    /// and the rest is for another operation. The one that has a budget of at least 1 gets on.
    ///
    /// A cut out of the middle of an extent may have to split a node, so it can fail with `NoSpace`;
    /// what goes to the end of the file cannot.
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

    /// A block map says nothing of clusters: where there are any, all files have extents.
    fn check_map_allowed(&self, file: &Handle) -> Outcome<()> {
        if self.fs.volume.geometry.cluster_blocks_log == 0 {
            return Ok(());
        }
        Err(file.corrupt("inode", "it has a block map in a file system with clusters").into())
    }

    /// Whether the journal may hold blocks of a file's data, so that they must be revoked.
    fn is_journaled(file: &Handle) -> bool {
        !matches!(file.inode.file_type(), Some(FileType::Regular))
            || file.has_flag(flags::EA_INODE | flags::JOURNAL_DATA)
    }

    /// Blocks of a run of `len` that can be freed for `budget`.
    pub(crate) fn freed_at_once(&self, file: &Handle, budget: u32) -> u32 {
        if Self::is_journaled(file) { budget } else { u32::MAX }
    }

    /// What freeing a run of `len` blocks costs of a budget.
    pub(crate) fn cost_of_freeing(&self, file: &Handle, len: u32) -> u32 {
        if Self::is_journaled(file) { len } else { 1 }
    }

    /// Frees a run of a file's data, whole clusters; what that costs of a budget.
    pub(crate) fn free_data(&mut self, file: &mut Handle, start: Block, len: u32) -> Outcome<u32> {
        let cost = self.forget_data(file, start, len);
        self.free_blocks(file, start, len)?;
        Ok(cost)
    }

    /// Sees to it that blocks of a file's data that it no longer has are not written any more; what
    /// freeing them costs of a budget.
    pub(crate) fn forget_data(&mut self, file: &Handle, start: Block, len: u32) -> u32 {
        if Self::is_journaled(file) {
            for step in 0..u64::from(len) {
                self.txn.forget(start.plus(step).0);
            }
        }
        self.cost_of_freeing(file, len)
    }

    /// Where blocks of an inode's own metadata should go: into its group.
    pub(crate) fn metadata_goal(&self, file: &Handle) -> Block {
        let geometry = &self.fs.volume.geometry;
        let group = geometry.place_of(file.ino()).map_or(Group(0), |(group, _)| group);
        geometry.first_block(group)
    }

    /// Counts clusters off an inode.
    pub(crate) fn subtract_clusters(&mut self, file: &mut Handle, count: u32) -> Outcome<()> {
        let block_size = self.fs.volume.geometry.block_size();
        let units = self.cluster_units(count);
        let counted = file.inode.blocks_512(block_size);
        let Some(left) = counted.checked_sub(units) else {
            let damage = Corruption::new("inode", "it has more blocks than it counts");
            let damage =
                damage.of_inode(file.ino().0).mismatch(format!("{units} or more"), counted);
            return Err(damage.into());
        };
        file.inode.set_blocks_512(left, block_size);
        Ok(())
    }

    /// Clusters in the units of 512 bytes that inodes count.
    fn cluster_units(&self, count: u32) -> u64 {
        let geometry = &self.fs.volume.geometry;
        (u64::from(count) << geometry.cluster_blocks_log) * u64::from(geometry.block_size() / 512)
    }

    /// Counts clusters as an inode's.
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
