//! Block maps of ext2 and ext3: twelve direct blocks, then one, two and three levels of blocks of
//! block numbers.
//!
//! Source: kernel Documentation/filesystems/ext4/blockmap.rst.

use smallvec::SmallVec;
use vfs::{Error, Result};

use crate::format::address::{Block, FileBlock};
use crate::kind::Kind;
use crate::op::{Handle, Op};

/// Blocks that `i_block` names itself.
const DIRECT: u64 = 12;

/// The way to a block: the slot of `i_block`, then the slot in each level of blocks below it.
fn path_to(block: FileBlock, block_size: usize) -> Result<SmallVec<[usize; 4]>> {
    let per_block = (block_size / 4) as u64;
    let mut rest = u64::from(block.0);
    if rest < DIRECT {
        return Ok(SmallVec::from_slice(&[rest as usize]));
    }
    rest -= DIRECT;
    let mut span = per_block;
    for level in 1..=3_u32 {
        if rest < span {
            let mut path = SmallVec::from_slice(&[DIRECT as usize + level as usize - 1]);
            for step in (0..level).rev() {
                path.push((rest / per_block.pow(step) % per_block) as usize);
            }
            return Ok(path);
        }
        rest -= span;
        span = span.saturating_mul(per_block);
    }
    Err(Error::FileTooLarge)
}

fn number_at(bytes: &[u8], slot: usize) -> Block {
    let at = slot * 4;
    Block(u64::from(u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])))
}

impl Op<'_> {
    /// The device block of a block of a file with a block map.
    pub(crate) fn find_indirect(
        &mut self,
        file: &Handle,
        block: FileBlock,
    ) -> Result<Option<Block>> {
        let path = path_to(block, self.fs.volume.block_size())?;
        let mut found = number_at(file.inode.i_block(), path[0]);
        for &slot in &path[1..] {
            if found == Block(0) {
                return Ok(None);
            }
            self.check_mapped(file, found)?;
            let id = self.buffer(found, Kind::Pieces.plain())?;
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
        if path.len() == 1 {
            file.inode.i_block_mut()[path[0] * 4..][..4].copy_from_slice(&number);
            return Ok(());
        }
        let mut parent = number_at(file.inode.i_block(), path[0]);
        if parent == Block(0) {
            parent = self.new_indirect(file)?;
            file.inode.i_block_mut()[path[0] * 4..][..4]
                .copy_from_slice(&(parent.0 as u32).to_le_bytes());
        }
        for &slot in &path[1..path.len() - 1] {
            self.check_mapped(file, parent)?;
            let id = self.buffer(parent, Kind::Pieces.plain())?;
            let mut child = number_at(self.txn.data(id), slot);
            if child == Block(0) {
                child = self.new_indirect(file)?;
                self.txn
                    .edit(id, slot * 4..slot * 4 + 4)
                    .copy_from_slice(&(child.0 as u32).to_le_bytes());
            }
            parent = child;
        }
        self.check_mapped(file, parent)?;
        let id = self.buffer(parent, Kind::Pieces.plain())?;
        let slot = path[path.len() - 1];
        self.txn.edit(id, slot * 4..slot * 4 + 4).copy_from_slice(&number);
        Ok(())
    }

    fn new_indirect(&mut self, file: &mut Handle) -> Result<Block> {
        let goal = self.metadata_goal(file);
        let (block, _) = self.allocate_blocks(goal, 1)?;
        if block.0 > u64::from(u32::MAX) {
            return Err(Error::NoSpace);
        }
        self.add_blocks(file, 1)?;
        self.txn.create(block.0, Kind::Pieces.plain())?;
        Ok(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_change_level_where_the_format_says() {
        let path = |block| path_to(FileBlock(block), 1024).unwrap().to_vec();
        assert_eq!(path(11), [11]);
        assert_eq!(path(12), [12, 0]);
        assert_eq!(path(12 + 255), [12, 255]);
        assert_eq!(path(12 + 256), [13, 0, 0]);
        assert_eq!(path(12 + 256 + 257), [13, 1, 1]);
        assert_eq!(path(12 + 256 + 65536), [14, 0, 0, 0]);
        assert!(path_to(FileBlock(u32::MAX), 1024).is_err());
    }
}
