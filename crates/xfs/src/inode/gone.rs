//! Chunks of inodes that were given back since the file system was opened.
//!
//! Their blocks may hold inodes as they were last written, as if in use, or by now anything. Who still
//! has the number of such an inode, from before its name was removed, must learn that it is not in use.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

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
    /// that who waits to read them finds it noted.
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
