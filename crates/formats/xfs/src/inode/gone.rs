//! Inode chunks that were freed since the file system was opened.
//!
//! Their blocks may still contain inodes as last written, which look in use, or any later contents. A caller with an
//! old inode number must get an error.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use engine::locks::Mutex;
use engine::locks::atomic::AtomicUsize;
use operations::InMemoryUndo;
use smallvec::SmallVec;

use crate::format::address::Block;

/// Effect of a committing operation on a block of inodes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InodeBlock {
    /// It was filled with free inodes.
    Made(Block),
    /// It was freed.
    Gone(Block),
}

/// Blocks that contained inodes and were freed.
#[derive(Default)]
pub(crate) struct GoneChunks {
    /// Size of `blocks`, so that the lock is not needed while the set is empty.
    count: AtomicUsize,
    blocks: Mutex<HashSet<Block>>,
}

impl GoneChunks {
    /// Returns whether a block of inodes was freed. Must be called after the block was read.
    pub(crate) fn contains(&self, block: Block) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.blocks.lock().contains(&block)
    }

    /// Records the changes of an operation. Must be called while its transaction still holds the blocks, so that a
    /// reader waiting for them finds them recorded.
    pub(crate) fn note(&self, changes: &[InodeBlock]) {
        if changes.is_empty() {
            return;
        }
        let mut blocks = self.blocks.lock();
        for change in changes {
            match change {
                InodeBlock::Made(block) => blocks.remove(block),
                InodeBlock::Gone(block) => blocks.insert(*block),
            };
        }
        self.count.store(blocks.len(), Ordering::Release);
    }
}

/// The blocks of inodes that an operation adds or frees. They are recorded while the transaction still holds them, so
/// that a thread waiting to read one finds it recorded.
pub(crate) struct ChunkChanges<'a> {
    gone: &'a GoneChunks,
    blocks: SmallVec<[InodeBlock; 8]>,
}

impl<'a> ChunkChanges<'a> {
    pub(crate) fn new(gone: &'a GoneChunks) -> Self {
        Self { gone, blocks: SmallVec::new() }
    }

    pub(super) fn push(&mut self, block: InodeBlock) {
        self.blocks.push(block);
    }

    /// Returns the number of blocks.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the block with index `at` if it was freed.
    pub(super) fn gone_at(&self, at: usize) -> Option<Block> {
        match self.blocks[at] {
            InodeBlock::Made(_) => None,
            InodeBlock::Gone(block) => Some(block),
        }
    }
}

impl InMemoryUndo for ChunkChanges<'_> {
    fn keep(&mut self) {
        self.gone.note(&self.blocks);
        self.blocks.clear();
    }
}
