//! Blocks that break a rule that this implementation obeys but others need not.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::Corruption;
use engine::locks::Mutex;

use crate::format::address::Block;

/// Blocks that broke the stricter rules when they were read. Such faults do not prevent other changes of the block.
#[derive(Default)]
pub(crate) struct Oddities {
    /// True if there are any. Hardly any image has such blocks.
    has_any: AtomicBool,
    blocks: Mutex<HashSet<Block>>,
}

impl Oddities {
    /// Records the result of the stricter verifier for a block that was just read.
    pub(super) fn note(&self, block: Block, verified: Result<(), Corruption>) {
        if verified.is_err() {
            self.blocks.lock().insert(block);
            self.has_any.store(true, Ordering::Release);
        } else if self.has_any.load(Ordering::Acquire) {
            self.blocks.lock().remove(&block);
        }
    }

    /// Returns whether a block was odd when it was last read.
    pub(super) fn contains(&self, block: Block) -> bool {
        self.has_any.load(Ordering::Acquire) && self.blocks.lock().contains(&block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_read_determines_whether_a_block_is_unusual() {
        let odd = Oddities::default();
        assert!(!odd.contains(Block(1)));
        odd.note(Block(1), Err(Corruption::new("block", "odd")));
        assert!(odd.contains(Block(1)) && !odd.contains(Block(2)));
        odd.note(Block(1), Ok(()));
        assert!(!odd.contains(Block(1)));
    }
}
