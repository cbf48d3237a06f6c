//! Chunks of inodes that were given back since the file system was opened.
//!
//! Their blocks may hold inodes as they were last written, as if in use, or by now anything. Who still
//! has the number of such an inode, from before its name was removed, must learn that it is not in use.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use operation::Side;
use smallvec::SmallVec;
use transaction::locks::Mutex;
use transaction::locks::atomic::AtomicUsize;

use crate::format::address::Block;

/// What becomes of a block of inodes when an operation commits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InodeBlock {
    /// Free inodes were put into it.
    Made(Block),
    /// It was given back.
    Gone(Block),
}

/// Blocks that held inodes and do not any more.
#[derive(Default)]
pub(crate) struct GoneChunks {
    /// Size of `blocks`, so that nobody waits where there are none.
    count: AtomicUsize,
    blocks: Mutex<HashSet<Block>>,
}

impl GoneChunks {
    /// Whether a block held inodes and does not any more. To be asked after the block was read.
    pub(crate) fn contains(&self, block: Block) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.blocks.lock().contains(&block)
    }

    /// Notes what an operation has done. To be called while its transaction still holds the blocks, so
    /// that a reader that waits for them finds it noted.
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

/// The blocks of inodes that an operation makes or gives back. They are noted while the transaction still
/// holds them, so that whoever waits to read one finds it noted.
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

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// The block `at` of them if it was given back.
    pub(super) fn gone_at(&self, at: usize) -> Option<Block> {
        match self.blocks[at] {
            InodeBlock::Made(_) => None,
            InodeBlock::Gone(block) => Some(block),
        }
    }
}

impl Side for ChunkChanges<'_> {
    fn keep(&mut self) {
        self.gone.note(&self.blocks);
        self.blocks.clear();
    }
}
