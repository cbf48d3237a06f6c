//! Which blocks of the device hold which blocks of a file, whatever the form of the map.

use vfs::{Corruption, Error, Result};

use crate::format::address::{Block, FileBlock, Group};
use crate::format::extent::{Extent, UNWRITTEN_LEN_MAX, WRITTEN_LEN_MAX};
use crate::format::inode::flags;
use crate::op::{Handle, Op};

impl Op<'_> {
    /// The device block of a block of a file, if it has one that was written.
    pub(crate) fn find_block(&mut self, file: &Handle, block: FileBlock) -> Result<Option<Block>> {
        if !file.inode.has_flag(flags::EXTENTS) {
            return self.find_indirect(file, block);
        }
        let extent = self.find_extent(file, block)?.filter(|e| !e.unwritten);
        Ok(extent.map(|e| e.start.plus(u64::from(block.0 - e.block.0))))
    }

    /// Enters `len` allocated blocks from `start` on into the map of a file, over blocks that it
    /// does not have yet, and counts them.
    pub(crate) fn map_blocks(
        &mut self,
        file: &mut Handle,
        block: FileBlock,
        start: Block,
        len: u32,
        unwritten: bool,
    ) -> Result<()> {
        self.add_blocks(file, len)?;
        if file.inode.has_flag(flags::EXTENTS) {
            return self.insert_extent(file, Extent { block, len, start, unwritten });
        }
        for step in 0..len {
            let at = block.checked_plus(step).ok_or(Error::FileTooLarge)?;
            self.insert_indirect(file, at, start.plus(u64::from(step)))?;
        }
        Ok(())
    }

    /// Takes and maps blocks for the hole `block..block + len` of a file, contiguous as far as
    /// possible with each other and with what the file has right before.
    pub(crate) fn fill_hole(
        &mut self,
        file: &mut Handle,
        block: FileBlock,
        len: u32,
        unwritten: bool,
    ) -> Result<()> {
        let len_max = if unwritten { UNWRITTEN_LEN_MAX } else { WRITTEN_LEN_MAX };
        let mut done = 0;
        let mut goal = self.data_goal(file, block)?;
        while done < len {
            let at = block.checked_plus(done).ok_or(Error::FileTooLarge)?;
            let (start, taken) = self.allocate_blocks(goal, (len - done).min(len_max))?;
            self.map_blocks(file, at, start, taken, unwritten)?;
            goal = start.plus(u64::from(taken));
            done += taken;
        }
        Ok(())
    }

    /// Where a file's next data should go: right behind what it has before `block`.
    fn data_goal(&mut self, file: &Handle, block: FileBlock) -> Result<Block> {
        if let Some(before) = block.0.checked_sub(1)
            && let Some(found) = self.find_block(file, FileBlock(before))?
        {
            return Ok(found.plus(1));
        }
        Ok(self.metadata_goal(file))
    }

    /// Where blocks of an inode's own metadata should go: into its group.
    pub(crate) fn metadata_goal(&self, file: &Handle) -> Block {
        let geometry = &self.fs.volume.geometry;
        let group = geometry.place_of(file.ino()).map_or(Group(0), |(group, _)| group);
        geometry.first_block(group)
    }

    /// Counts blocks off an inode.
    pub(crate) fn subtract_blocks(&mut self, file: &mut Handle, count: u32) -> Result<()> {
        let block_size = self.fs.volume.geometry.block_size();
        let units = u64::from(count) * u64::from(block_size / 512);
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

    /// Counts blocks as an inode's.
    pub(crate) fn add_blocks(&mut self, file: &mut Handle, count: u32) -> Result<()> {
        let block_size = self.fs.volume.geometry.block_size();
        let units =
            file.inode.blocks_512(block_size) + u64::from(count) * u64::from(block_size / 512);
        let huge = self.fs.volume.huge_file || units <= u64::from(u32::MAX);
        if !huge || !file.inode.set_blocks_512(units, block_size) {
            return Err(Error::FileTooLarge);
        }
        Ok(())
    }
}
