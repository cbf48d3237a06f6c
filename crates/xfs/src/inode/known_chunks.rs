//! Where the records of the chunks that changed last are in the trees of inodes: a part of a group's state, so that it is
//! put back with it. Inodes are mostly taken and freed one after the other in one chunk, so most need no way down from
//! the roots.
//!
//! It is only where to look: a record that is not there any more is searched for. But a leaf may be looked into only as
//! long as it is one of the tree, so all is forgotten when the tree gives up a block.

use crate::format::address::{AgBlock, AgIno};

/// A tree of inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkTree {
    /// That of all chunks.
    All,
    /// That of chunks with free inodes.
    Free,
}

/// Where the record of a chunk was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spot {
    /// The first inode of the chunk.
    pub(super) start: AgIno,
    /// The leaf and the place in it; block 0, which is none of a tree, if nothing is known.
    pub(super) leaf: AgBlock,
    pub(super) position: u32,
}

/// What is known of the trees of inodes of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownChunks {
    all: Spot,
    free: Spot,
    /// Which inode the chunk of `free` is the nearest to of all that have free inodes.
    nearest_to: Option<AgIno>,
}

impl KnownChunks {
    /// A tree gives up a block.
    pub(crate) fn forget(&mut self, tree: ChunkTree) {
        match tree {
            ChunkTree::All => self.all = Spot::default(),
            ChunkTree::Free => self.free = Spot::default(),
        }
    }

    /// The tree of chunks with free inodes has got a record or lost one.
    pub(super) fn forget_nearest(&mut self) {
        self.nearest_to = None;
    }

    /// The record of a chunk is at a place.
    pub(super) fn note(&mut self, tree: ChunkTree, spot: Spot) {
        match tree {
            ChunkTree::All => self.all = spot,
            ChunkTree::Free if spot != self.free => (self.free, self.nearest_to) = (spot, None),
            ChunkTree::Free => {}
        }
    }

    /// The chunk whose record in the tree of chunks with free inodes was noted last is the nearest to an inode.
    pub(super) fn note_nearest(&mut self, near: AgIno) {
        self.nearest_to = Some(near);
    }

    /// Whether the chunk that is known in the tree of chunks with free inodes is the nearest to an inode.
    pub(super) fn has_nearest(&self, near: AgIno) -> bool {
        self.nearest_to == Some(near)
    }

    /// What is known of a tree.
    pub(super) fn spot(&self, tree: ChunkTree) -> Spot {
        match tree {
            ChunkTree::All => self.all,
            ChunkTree::Free => self.free,
        }
    }
}
