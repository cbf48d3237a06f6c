//! The buffer cache, sharded by block number, with clock eviction.
//!
//! A buffer is evicted only if there are no other references to it. The dirty list of a checkpoint references its
//! buffers, so they are not evicted before they are written back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;
use hashbrown::HashMap;

use crate::buffer::{BufferState, SharedBuffer};
use crate::locks::atomic::AtomicU64;
use crate::locks::{Mutex, RwLock};
use crate::numbers::{BuildNumberHasher, FIBONACCI};

/// Minimum and maximum number of shards, powers of two. Far more than threads, so that contention is rare.
const SHARDS: (usize, usize) = (64, 1024);

/// Minimum number of blocks per shard, above the minimum number of shards. With fewer, an uneven distribution would
/// make some shards evict blocks in use.
const SHARD_BLOCKS: usize = 512;

/// Number of shards whose bits share a word.
const WORD: usize = 64;

/// Binary logarithm of the number of blocks in a region. A region belongs to one shard: with large regions, some shards
/// would have many more blocks than others.
const REGION_BITS: u32 = 4;

/// Consecutive blocks, as far as they are cached. The blocks of one directory share a few pages of the table, even if
/// they are accessed at random.
struct Region {
    buffers: [Option<SharedBuffer>; 1 << REGION_BITS],
    /// One bit for each block that was used since the clock hand last passed.
    referenced: u16,
}

#[derive(Default)]
struct CacheShard {
    regions: HashMap<u64, Box<Region>, BuildNumberHasher>,
    /// Cached blocks in clock order.
    slots: Vec<u64>,
    hand: usize,
    /// Blocks that became dirty in the running checkpoint.
    dirty: Vec<(u64, SharedBuffer)>,
}

pub(crate) struct Cache {
    /// A power of two.
    shards: Box<[CachePadded<Mutex<CacheShard>>]>,
    /// Number of hash bits that do not select the shard.
    shard_shift: u32,
    /// One bit for each shard with dirty blocks, so that a small checkpoint does not visit all shards. Set while the
    /// shard is locked.
    dirty_shards: Box<[CachePadded<AtomicU64>]>,
    shard_slots_max: usize,
}

impl Cache {
    /// Creates a cache for about `blocks_max` blocks.
    pub(crate) fn new(blocks_max: usize) -> Self {
        let shards = (blocks_max / SHARD_BLOCKS).next_power_of_two().clamp(SHARDS.0, SHARDS.1);
        Self {
            shards: (0..shards).map(|_| CachePadded::default()).collect(),
            shard_shift: u64::BITS - shards.trailing_zeros(),
            dirty_shards: (0..shards.div_ceil(WORD)).map(|_| CachePadded::default()).collect(),
            shard_slots_max: (blocks_max / shards).max(4),
        }
    }

    fn shard_number(&self, block: u64) -> usize {
        let run = (block >> REGION_BITS).wrapping_mul(FIBONACCI);
        (run >> self.shard_shift) as usize
    }

    /// Returns the buffer of `block`; creates it (not loaded) if it was not cached.
    pub(crate) fn get(&self, block: u64) -> SharedBuffer {
        let mut shard = self.shards[self.shard_number(block)].lock();
        if let Some(region) = shard.regions.get_mut(&(block >> REGION_BITS))
            && let Some(buffer) = &region.buffers[place(block)]
        {
            region.referenced |= 1 << place(block);
            return Arc::clone(buffer);
        }
        shard.insert(block, self.shard_slots_max)
    }

    /// Adds a buffer that became dirty in the running checkpoint.
    pub(crate) fn add_dirty(&self, block: u64, buffer: &SharedBuffer) {
        let number = self.shard_number(block);
        let mut shard = self.shards[number].lock();
        if shard.dirty.is_empty() {
            self.dirty_shards[number / WORD].fetch_or(1 << (number % WORD), Ordering::Relaxed);
        }
        shard.dirty.push((block, Arc::clone(buffer)));
    }

    /// Takes the blocks that became dirty since the last call, in no particular order. No block may be added during the
    /// call.
    pub(crate) fn take_dirty(&self) -> Vec<(u64, SharedBuffer)> {
        let mut all = Vec::new();
        for (bits, shards) in self.dirty_shards.iter().zip(self.shards.chunks(WORD)) {
            let mut bits = bits.swap(0, Ordering::Relaxed);
            while bits != 0 {
                all.append(&mut shards[bits.trailing_zeros() as usize].lock().dirty);
                bits &= bits - 1;
            }
        }
        all
    }

    /// Returns the number of cached blocks.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|s| s.lock().slots.len()).sum()
    }
}

/// Returns the index of a block within its region.
const fn place(block: u64) -> usize {
    (block & ((1 << REGION_BITS) - 1)) as usize
}

impl Default for Region {
    fn default() -> Self {
        Self { buffers: [const { None }; 1 << REGION_BITS], referenced: 0 }
    }
}

impl CacheShard {
    fn insert(&mut self, block: u64, slots_max: usize) -> SharedBuffer {
        let victim = if self.slots.len() < slots_max { None } else { self.find_victim() };
        let old = match victim {
            Some(slot) => {
                let old = std::mem::replace(&mut self.slots[slot], block);
                self.remove(old)
            }
            None => {
                self.slots.push(block);
                None
            }
        };
        let buffer = renewed(old.unwrap_or_default(), block);
        let region = self.regions.entry(block >> REGION_BITS).or_default();
        region.referenced |= 1 << place(block);
        region.buffers[place(block)] = Some(Arc::clone(&buffer));
        buffer
    }

    /// Removes a block from its region, and an empty region from the shard.
    fn remove(&mut self, block: u64) -> Option<SharedBuffer> {
        let region = self.regions.get_mut(&(block >> REGION_BITS))?;
        let buffer = region.buffers[place(block)].take();
        if region.buffers.iter().all(Option::is_none) {
            self.regions.remove(&(block >> REGION_BITS));
        }
        buffer
    }

    /// Returns a slot without references that was not used since the hand last passed. Returns `None` after two rounds
    /// without one: the shard then grows beyond its share until buffers are released.
    fn find_victim(&mut self) -> Option<usize> {
        for _ in 0..2 * self.slots.len() {
            let position = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            let block = self.slots[position];
            let Some(region) = self.regions.get_mut(&(block >> REGION_BITS)) else {
                return Some(position);
            };
            let bit = 1 << place(block);
            let was_used = region.referenced & bit != 0;
            region.referenced &= !bit;
            let is_held = |buffer: &SharedBuffer| Arc::strong_count(buffer) > 1;
            if !was_used && !region.buffers[place(block)].as_ref().is_some_and(is_held) {
                return Some(position);
            }
        }
        None
    }
}

/// Returns a buffer for `block` that reuses the memory of an unreferenced buffer.
fn renewed(mut buffer: SharedBuffer, block: u64) -> SharedBuffer {
    match Arc::get_mut(&mut buffer) {
        Some(lock) => {
            let contents = lock.get_mut();
            // Keeps the memory, clears the note.
            let (data, mut note) =
                (std::mem::take(&mut contents.data), std::mem::take(&mut contents.note));
            note.clear();
            *contents = BufferState { block, data, note, ..BufferState::default() };
            buffer
        }
        None => Arc::new(RwLock::new(BufferState { block, ..BufferState::default() })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_holds_while_buffers_are_let_go() {
        let cache = Cache::new(256);
        for block in 0..10_000 {
            assert_eq!(cache.get(block).read().block, block);
        }
        assert!(cache.len() <= 256, "{}", cache.len());
    }

    #[test]
    fn dirty_buffers_of_all_shards_are_taken_once() {
        for blocks_max in [64, 1 << 16, 1 << 22] {
            let cache = Cache::new(blocks_max);
            let blocks: Vec<u64> = (0..5000).map(|number| number * 7).collect();
            for round in 0..2 {
                for &block in &blocks {
                    cache.add_dirty(block, &cache.get(block));
                }
                let mut taken: Vec<_> =
                    cache.take_dirty().iter().map(|&(block, _)| block).collect();
                taken.sort_unstable();
                assert_eq!(taken, blocks, "round {round} of {blocks_max}");
                assert!(cache.take_dirty().is_empty());
            }
        }
    }

    #[test]
    fn shards_are_as_many_as_the_cache_is_large() {
        let shards = |blocks_max| Cache::new(blocks_max).shards.len();
        assert_eq!([64, 1 << 14, 1 << 16, 100_000, 1 << 24].map(shards), [64, 64, 128, 256, 1024]);
    }

    #[test]
    fn held_buffers_survive() {
        let cache = Cache::new(256);
        let held = cache.get(7);
        held.write().loaded = true;
        for block in 100..5000 {
            cache.get(block);
        }
        assert!(cache.get(7).read().loaded);
    }
}
