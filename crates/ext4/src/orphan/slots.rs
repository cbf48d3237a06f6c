//! Which slots of the orphan file are taken, so that any thread claims one without waiting.
//!
//! Each block has a count of its free slots and a bit for each slot. A claim first counts one slot
//! off, after which a free bit is sure to be there: bits are cleared before their slots are counted
//! as free again. Each thread starts at a block of its own, so that few threads change the same
//! block at a time.

use std::sync::atomic::Ordering;

use crate::format::address::Block;
use crate::format::inode::Owner;
use crossbeam_utils::CachePadded;
use transaction::locks::atomic::{AtomicU32, AtomicU64};
use transaction::locks::thread_number;

/// A slot of the orphan file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// Which block of the file.
    pub(super) block: u32,
    /// Which slot in it.
    pub(super) index: u32,
}

impl Slot {
    /// The bytes of the slot in its block.
    pub(super) fn bytes(self) -> std::ops::Range<usize> {
        let at = self.index as usize * 4;
        at..at + 4
    }
}

/// The slots of one block.
struct BlockSlots {
    /// Where the block is.
    place: Block,
    free: AtomicU32,
    taken: Box<[AtomicU64]>,
}

/// The slots of the orphan file.
pub(super) struct Slots {
    /// The orphan file's own inode.
    pub(super) owner: Owner,
    /// Apart in memory, because threads start at different ones.
    blocks: Box<[CachePadded<BlockSlots>]>,
}

impl Slots {
    /// All free, in the blocks given, of which each has `per_block` slots.
    pub(super) fn new(owner: Owner, places: &[Block], per_block: usize) -> Self {
        let blocks = places
            .iter()
            .map(|&place| CachePadded::new(BlockSlots::new(place, per_block)))
            .collect();
        Self { owner, blocks }
    }

    /// Where a block of the file is.
    pub(super) fn place(&self, slot: Slot) -> Block {
        self.blocks[slot.block as usize].place
    }

    /// Takes a free slot. `None` if all are taken.
    pub(super) fn claim(&self) -> Option<Slot> {
        let count = self.blocks.len();
        let start = thread_number();
        (0..count).find_map(|step| {
            let block = start.wrapping_add(step) % count;
            let index = self.blocks[block].claim()?;
            Some(Slot { block: block as u32, index })
        })
    }

    /// Takes the slot in which an orphan was found.
    pub(super) fn occupy(&self, slot: Slot) {
        let block = &self.blocks[slot.block as usize];
        block.taken[slot.index as usize / 64].fetch_or(1 << (slot.index % 64), Ordering::Relaxed);
        block.free.fetch_sub(1, Ordering::Relaxed);
    }

    /// Gives a slot back.
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
            // Bits past the last slot are taken for ever.
            AtomicU64::new(if here < 64 { u64::MAX << here } else { 0 })
        };
        let taken = (0..slots.div_ceil(64)).map(word).collect();
        Self { place, free: AtomicU32::new(slots as u32), taken }
    }

    fn claim(&self) -> Option<u32> {
        let one_less = |free: u32| free.checked_sub(1);
        self.free.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_less).ok()?;
        // Others may take the bit that was seen, but then one elsewhere is free for this thread.
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
        Slots::new(Owner { ino: Ino(12), seed: 0 }, &places, per_block)
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
