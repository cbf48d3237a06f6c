//! Block maps of ext2 and ext3: twelve direct blocks, then one, two and three levels of blocks of
//! block numbers.
//!
//! Source: kernel Documentation/filesystems/ext4/blockmap.rst.

use vfs::{Error, Result};

use crate::format::address::{Block, FileBlock};
use crate::format::indirect::{self, Path};
use crate::kind::Kind;
use crate::op::{Handle, Op};

fn path_to(block: FileBlock, block_size: usize) -> Result<Path> {
    Path::to(block, block_size as u32).ok_or(Error::FileTooLarge)
}

fn number_at(bytes: &[u8], slot: u16) -> Block {
    indirect::pointer(bytes, slot).unwrap_or_default()
}

/// The bytes of a slot.
fn slot_range(slot: u16) -> std::ops::Range<usize> {
    let at = usize::from(slot) * 4;
    at..at + 4
}

impl Op<'_> {
    /// The device block of a block of a file with a block map.
    pub(crate) fn find_indirect(
        &mut self,
        file: &Handle,
        block: FileBlock,
    ) -> Result<Option<Block>> {
        let path = path_to(block, self.fs.volume.block_size())?;
        let path = path.indexes();
        let mut found = number_at(file.inode.i_block(), path[0]);
        for &slot in &path[1..] {
            if found == Block(0) {
                return Ok(None);
            }
            self.check_mapped(file, found)?;
            let id = self.buffer(found, Kind::Indirect.of(file.owner))?;
            found = number_at(self.txn.data(id), slot);
        }
        if found == Block(0) {
            return Ok(None);
        }
        self.check_mapped(file, found)?;
        Ok(Some(found))
    }

    fn check_mapped(&self, file: &Handle, block: Block) -> Result<()> {
        self.fs.volume.check_blocks(block, 1).map_err(|c| c.of_inode(file.ino().0).into())
    }

    /// Enters a block into a block map, with the levels that it takes.
    pub(crate) fn insert_indirect(
        &mut self,
        file: &mut Handle,
        block: FileBlock,
        start: Block,
    ) -> Result<()> {
        let number = u32::try_from(start.0).map_err(|_| Error::FileTooLarge)?.to_le_bytes();
        let path = path_to(block, self.fs.volume.block_size())?;
        let path = path.indexes();
        if path.len() == 1 {
            file.inode.i_block_mut()[slot_range(path[0])].copy_from_slice(&number);
            return Ok(());
        }
        let mut parent = number_at(file.inode.i_block(), path[0]);
        if parent == Block(0) {
            parent = self.new_indirect(file)?;
            file.inode.i_block_mut()[slot_range(path[0])]
                .copy_from_slice(&(parent.0 as u32).to_le_bytes());
        }
        for &slot in &path[1..path.len() - 1] {
            self.check_mapped(file, parent)?;
            let id = self.buffer(parent, Kind::Indirect.of(file.owner))?;
            let mut child = number_at(self.txn.data(id), slot);
            if child == Block(0) {
                child = self.new_indirect(file)?;
                self.txn
                    .edit(id, slot_range(slot))
                    .copy_from_slice(&(child.0 as u32).to_le_bytes());
            }
            parent = child;
        }
        self.check_mapped(file, parent)?;
        let id = self.buffer(parent, Kind::Indirect.of(file.owner))?;
        let slot = path[path.len() - 1];
        self.txn.edit(id, slot_range(slot)).copy_from_slice(&number);
        Ok(())
    }

    fn new_indirect(&mut self, file: &mut Handle) -> Result<Block> {
        let goal = self.metadata_goal(file);
        let (block, _) = self.allocate_blocks(goal, 1)?;
        if block.0 > u64::from(u32::MAX) {
            return Err(Error::NoSpace);
        }
        self.add_blocks(file, 1)?;
        self.txn.create(block.0, Kind::Indirect.of(file.owner))?;
        Ok(block)
    }
}
