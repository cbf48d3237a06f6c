//! Allocation of the slots of the orphan file without locks.
//!
//! Each block has a count of its free slots and a bit per slot. A claim first decrements the count, which guarantees a
//! free bit: a release clears the bit before it increments the count. Each thread starts at a different block, so that
//! threads rarely use the same block at a time.

use std::sync::atomic::Ordering;

use crate::format::address::Block;
use crate::format::inode::BlockOwner;
use crossbeam_utils::CachePadded;
use engine::locks::atomic::{AtomicU32, AtomicU64};
use engine::locks::thread_number;

/// A slot of the orphan file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// Index of its block in the file.
    pub(super) block: u32,
    /// Index of the slot in its block.
    pub(super) index: u32,
}

impl Slot {
    /// Returns the byte range of the slot in its block.
    pub(super) fn bytes(self) -> std::ops::Range<usize> {
        let at = self.index as usize * 4;
        at..at + 4
    }
}

/// Slots of one block.
struct BlockSlots {
    /// Position of the block on the device.
    place: Block,
    free: AtomicU32,
    taken: Box<[AtomicU64]>,
}

/// Slots of the orphan file.
pub(super) struct Slots {
    /// The orphan file's inode.
    pub(super) owner: BlockOwner,
    /// Padded to cache lines, because different threads use different blocks.
    blocks: Box<[CachePadded<BlockSlots>]>,
}

impl Slots {
    /// Returns free slots in the given blocks, `per_block` in each.
    pub(super) fn new(owner: BlockOwner, places: &[Block], per_block: usize) -> Self {
        let blocks = places
            .iter()
            .map(|&place| CachePadded::new(BlockSlots::new(place, per_block)))
            .collect();
        Self { owner, blocks }
    }

    /// Returns the device block of a slot.
    pub(super) fn place(&self, slot: Slot) -> Block {
        self.blocks[slot.block as usize].place
    }

    /// Claims a free slot. Returns `None` if all are taken.
    pub(super) fn claim(&self) -> Option<Slot> {
        let count = self.blocks.len();
        let start = thread_number();
        (0..count).find_map(|step| {
            let block = start.wrapping_add(step) % count;
            let index = self.blocks[block].claim()?;
            Some(Slot { block: block as u32, index })
        })
    }

    /// Marks a slot taken in which an orphan was found.
    pub(super) fn occupy(&self, slot: Slot) {
        let block = &self.blocks[slot.block as usize];
        block.taken[slot.index as usize / 64].fetch_or(1 << (slot.index % 64), Ordering::Relaxed);
        block.free.fetch_sub(1, Ordering::Relaxed);
    }

    /// Releases a slot.
    pub(super) fn release(&self, slot: Slot) {
        let block = &self.blocks[slot.block as usize];
        let bit = 1 << (slot.index % 64);
        block.taken[slot.index as usize / 64].fetch_and(!bit, Ordering::Release);
        block.free.fetch_add(1, Ordering::Release);
    }
}

impl BlockSlots {
    fn new(place: Block, slots: usize) -> Self {
        let word = |at: usize| {
            let here = slots.saturating_sub(at * 64);
            // Bits past the last slot are always set.
            AtomicU64::new(if here < 64 { u64::MAX << here } else { 0 })
        };
        let taken = (0..slots.div_ceil(64)).map(word).collect();
        Self { place, free: AtomicU32::new(slots as u32), taken }
    }

    fn claim(&self) -> Option<u32> {
        let one_less = |free: u32| free.checked_sub(1);
        self.free.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_less).ok()?;
        // Another thread may take the bit just seen, but then another bit is free for this thread.
        loop {
            for (at, word) in self.taken.iter().enumerate() {
                let mut seen = word.load(Ordering::Relaxed);
                while seen != u64::MAX {
                    let bit = 1 << seen.trailing_ones();
                    let before = word.fetch_or(bit, Ordering::Acquire);
                    if before & bit == 0 {
                        return Some((at * 64) as u32 + bit.trailing_zeros());
                    }
                    seen = before;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use parking_lot::Mutex;
    use vfs::Ino;

    use super::*;

    fn slots(blocks: u64, per_block: usize) -> Slots {
        let places: Vec<_> = (0..blocks).map(Block).collect();
        Slots::new(BlockOwner { ino: Ino(12), seed: 0 }, &places, per_block)
    }

    #[test]
    fn every_slot_is_claimed_once() {
        let slots = slots(3, 70);
        let claimed: HashSet<_> = std::iter::from_fn(|| slots.claim())
            .map(|slot| (slot.block, slot.index))
            .inspect(|&(block, index)| assert!(block < 3 && index < 70))
            .collect();
        assert_eq!(claimed.len(), 210);
        let back = Slot { block: 1, index: 69 };
        slots.release(back);
        assert_eq!(slots.claim(), Some(back));
        assert_eq!(slots.claim(), None);
    }

    #[test]
    fn threads_never_share_a_slot() {
        let slots = slots(2, 65);
        let held = Mutex::new(HashSet::new());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let mine: Vec<_> = (0..16).map_while(|_| slots.claim()).collect();
                        for slot in &mine {
                            assert!(held.lock().insert((slot.block, slot.index)));
                        }
                        for slot in mine {
                            assert!(held.lock().remove(&(slot.block, slot.index)));
                            slots.release(slot);
                        }
                    }
                });
            }
        });
        assert_eq!(std::iter::from_fn(|| slots.claim()).count(), 130);
    }
}
