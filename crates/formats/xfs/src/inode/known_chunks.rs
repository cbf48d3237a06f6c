//! Positions of the most recently changed chunk records in the inode trees. They are part of a group's state, so they
//! roll back with it. Inodes are mostly allocated and freed one after another in one chunk, so most need no descent
//! from the roots.
//!
//! A position is only a hint: a record that is not there is searched for. But a block may be read only while it is a
//! leaf of the tree, so all is forgotten when the tree frees a block.

use crate::format::address::{AgBlock, AgIno};

/// An inode tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkTree {
    /// The tree of all chunks.
    All,
    /// The tree of chunks with free inodes.
    Free,
}

/// The remembered position of a chunk's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spot {
    /// The first inode of the chunk.
    pub(super) start: AgIno,
    /// The leaf and the position in it. Block 0, which is never in a tree, means unknown.
    pub(super) leaf: AgBlock,
    pub(super) position: u32,
}

/// Remembered positions in the inode trees of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownChunks {
    all: Spot,
    free: Spot,
    /// The inode for which the chunk of `free` is known to be the nearest chunk with free inodes.
    nearest_to: Option<AgIno>,
}

impl KnownChunks {
    /// Forgets a tree's position. Called when the tree frees a block.
    pub(crate) fn forget(&mut self, tree: ChunkTree) {
        match tree {
            ChunkTree::All => self.all = Spot::default(),
            ChunkTree::Free => self.free = Spot::default(),
        }
    }

    /// Called when the tree of chunks with free inodes gains or loses a record.
    pub(super) fn forget_nearest(&mut self) {
        self.nearest_to = None;
    }

    /// Remembers the position of a chunk's record.
    pub(super) fn note(&mut self, tree: ChunkTree, spot: Spot) {
        match tree {
            ChunkTree::All => self.all = spot,
            ChunkTree::Free if spot != self.free => (self.free, self.nearest_to) = (spot, None),
            ChunkTree::Free => {}
        }
    }

    /// Records that the remembered chunk in the tree of chunks with free inodes is the nearest to an inode.
    pub(super) fn note_nearest(&mut self, near: AgIno) {
        self.nearest_to = Some(near);
    }

    /// Returns whether the remembered chunk in the tree of chunks with free inodes is the nearest to an inode.
    pub(super) fn has_nearest(&self, near: AgIno) -> bool {
        self.nearest_to == Some(near)
    }

    /// Returns the remembered position in a tree.
    pub(super) fn spot(&self, tree: ChunkTree) -> Spot {
        match tree {
            ChunkTree::All => self.all,
            ChunkTree::Free => self.free,
        }
    }
}
