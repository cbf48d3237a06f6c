//! Cached locations of the blocks of a directory.

use crate::format::address::{Block, FileBlock};
use crate::format::dir::DirLayout;

/// Known device locations of a directory's data blocks, hash index blocks and free index blocks, by their numbers. 0
/// means unknown.
#[derive(Default)]
pub(super) struct Maps([Vec<u64>; 3]);

impl Maps {
    fn row(layout: &DirLayout, at: FileBlock) -> (usize, usize) {
        let (row, first) = if at < layout.leaf_first() {
            (0, FileBlock(0))
        } else if at < layout.free_first() {
            (1, layout.leaf_first())
        } else {
            (2, layout.free_first())
        };
        (row, ((at.0 - first.0) / u64::from(layout.blocks())) as usize)
    }

    pub(super) fn get(&self, layout: &DirLayout, at: FileBlock) -> Option<Block> {
        let (row, index) = Self::row(layout, at);
        self.0[row].get(index).copied().filter(|block| *block != 0).map(Block)
    }

    /// Records the location of a block, unless its number is larger than the directory's number of blocks: such a
    /// sparse array would waste memory.
    pub(super) fn set(&mut self, layout: &DirLayout, at: FileBlock, block: Block, blocks: u64) {
        let (row, index) = Self::row(layout, at);
        if layout.blocks() > 1 || index as u64 > blocks {
            return;
        }
        let row = &mut self.0[row];
        if index >= row.len() {
            row.resize(index + 1, 0);
        }
        row[index] = block.0;
    }

    pub(super) fn clear(&mut self, layout: &DirLayout, at: FileBlock) {
        let (row, index) = Self::row(layout, at);
        if let Some(block) = self.0[row].get_mut(index) {
            *block = 0;
        }
    }

    /// Returns the bytes of memory in use.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|row| row.capacity() * 8).sum()
    }
}
