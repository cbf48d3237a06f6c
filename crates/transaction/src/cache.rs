//! The cache: sharded by block, with the clock algorithm to find what to evict.
//!
//! A buffer is evicted only when nothing else holds it. Dirty buffers are held by the list of the
//! checkpoint they belong to, so they cannot go before they are home.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use hashbrown::HashMap;

use crate::buffer::{Contents, Shared};
use crate::locks::{Mutex, RwLock};

/// Shards of the cache. More than threads, so that they rarely meet.
const SHARDS: usize = 64;

/// Blocks of a region, as a power of two. A region belongs to one shard: were regions large, some shards
/// would have many more blocks than others.
const REGION_BITS: u32 = 4;

#[derive(Default)]
struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, block: u64) {
        // Fibonacci hashing; the rotation brings the well-mixed high bits to both ends, because
        // the table takes its index from one and its tag from the other.
        self.0 = (self.0 ^ block).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

/// Blocks in a row, as far as they are cached. What is found together lies together: the blocks of one
/// directory, though they are asked for at random, are found through a few pages of memory.
struct Region {
    buffers: [Option<Shared>; 1 << REGION_BITS],
    /// Which of them were used since the clock's hand last passed: a bit each.
    referenced: u16,
}

#[derive(Default)]
struct Shard {
    regions: HashMap<u64, Box<Region>, BuildHasherDefault<BlockHasher>>,
    /// The clock: the blocks that are cached.
    slots: Vec<u64>,
    hand: usize,
    dirty: Vec<Shared>,
}

pub(crate) struct Cache {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    shard_slots_max: usize,
}

impl Cache {
    /// A cache that aims to hold no more than `blocks_max` blocks.
    pub(crate) fn new(blocks_max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            shard_slots_max: (blocks_max / SHARDS).max(4),
        }
    }

    fn shard(&self, block: u64) -> &Mutex<Shard> {
        let run = (block >> REGION_BITS).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(run >> (64 - SHARDS.trailing_zeros())) as usize]
    }

    /// The buffer of `block`, made (not loaded) if it was not cached.
    pub(crate) fn get(&self, block: u64) -> Shared {
        let mut shard = self.shard(block).lock();
        if let Some(region) = shard.regions.get_mut(&(block >> REGION_BITS))
            && let Some(buffer) = &region.buffers[place(block)]
        {
            region.referenced |= 1 << place(block);
            return Arc::clone(buffer);
        }
        shard.insert(block, self.shard_slots_max)
    }

    /// Remembers a buffer that the running checkpoint has just dirtied.
    pub(crate) fn add_dirty(&self, block: u64, buffer: &Shared) {
        self.shard(block).lock().dirty.push(Arc::clone(buffer));
    }

    /// Takes the buffers dirtied since the last call, in no order.
    pub(crate) fn take_dirty(&self) -> Vec<Shared> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.append(&mut shard.lock().dirty);
        }
        all
    }

    /// Blocks cached now.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|s| s.lock().slots.len()).sum()
    }
}

/// The place of a block in its region.
const fn place(block: u64) -> usize {
    (block & ((1 << REGION_BITS) - 1)) as usize
}

impl Default for Region {
    fn default() -> Self {
        Self { buffers: [const { None }; 1 << REGION_BITS], referenced: 0 }
    }
}

impl Shard {
    fn insert(&mut self, block: u64, slots_max: usize) -> Shared {
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

    /// Takes a block out of its region, and the region out of the shard with its last one.
    fn remove(&mut self, block: u64) -> Option<Shared> {
        let region = self.regions.get_mut(&(block >> REGION_BITS))?;
        let buffer = region.buffers[place(block)].take();
        if region.buffers.iter().all(Option::is_none) {
            self.regions.remove(&(block >> REGION_BITS));
        }
        buffer
    }

    /// A slot nobody holds and nobody used since the hand last passed. `None` if two rounds find
    /// none: the shard then grows past its share until buffers are let go.
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
            let is_held = |buffer: &Shared| Arc::strong_count(buffer) > 1;
            if !was_used && !region.buffers[place(block)].as_ref().is_some_and(is_held) {
                return Some(position);
            }
        }
        None
    }
}

/// A buffer for `block` in the memory of one that nobody holds, whatever that held.
fn renewed(mut buffer: Shared, block: u64) -> Shared {
    match Arc::get_mut(&mut buffer) {
        Some(lock) => {
            let contents = lock.get_mut();
            // The memory stays, the note does not.
            let (data, mut note) =
                (std::mem::take(&mut contents.data), std::mem::take(&mut contents.note));
            note.clear();
            *contents = Contents { block, data, note, ..Contents::default() };
            buffer
        }
        None => Arc::new(RwLock::new(Contents { block, ..Contents::default() })),
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
