//! The cache: sharded by block, with the clock algorithm to find what to evict.
//!
//! A buffer is evicted only when nothing else holds it. Dirty buffers are held by the list of the
//! checkpoint they belong to, so they cannot go before they are home.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};

use crate::buffer::{Contents, Shared};
use crate::padded::Padded;

/// Shards of the cache. More than threads, so that they rarely meet.
const SHARDS: usize = 64;

/// Consecutive blocks that share a shard, as a power of two.
const SHARD_RUN_BITS: u32 = 2;

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

/// A cached block. It lies in the table itself, because each step from place to place in memory is what
/// finding a block costs.
struct Entry {
    buffer: Shared,
    /// Its place in the clock.
    slot: u32,
}

#[derive(Default)]
struct Shard {
    index: HashMap<u64, Entry, BuildHasherDefault<BlockHasher>>,
    /// The clock: the blocks that are cached.
    slots: Vec<u64>,
    /// Which of them were used since the hand last passed: a bit each.
    referenced: Vec<u64>,
    hand: usize,
    dirty: Vec<Shared>,
}

pub(crate) struct Cache {
    shards: Box<[Padded<Mutex<Shard>>]>,
    shard_slots_max: usize,
}

impl Cache {
    /// A cache that aims to hold no more than `blocks_max` blocks.
    pub(crate) fn new(blocks_max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Padded::default()).collect(),
            shard_slots_max: (blocks_max / SHARDS).max(4),
        }
    }

    fn shard(&self, block: u64) -> &Mutex<Shard> {
        let run = (block >> SHARD_RUN_BITS).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(run >> (64 - SHARDS.trailing_zeros())) as usize]
    }

    /// The buffer of `block`, made (not loaded) if it was not cached.
    pub(crate) fn get(&self, block: u64) -> Shared {
        let mut shard = self.shard(block).lock();
        let shard = &mut *shard;
        if let Some(entry) = shard.index.get(&block) {
            mark(&mut shard.referenced, entry.slot as usize);
            return Arc::clone(&entry.buffer);
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

/// Sets a bit. The bits reach as far as the clock.
fn mark(bits: &mut [u64], at: usize) {
    bits[at / 64] |= 1 << (at % 64);
}

impl Shard {
    fn insert(&mut self, block: u64, slots_max: usize) -> Shared {
        let victim = if self.slots.len() < slots_max { None } else { self.find_victim() };
        let (slot, old) = match victim {
            Some(slot) => (slot, self.index.remove(&self.slots[slot])),
            None => {
                self.slots.push(block);
                self.referenced.resize(self.slots.len().div_ceil(64), 0);
                (self.slots.len() - 1, None)
            }
        };
        self.slots[slot] = block;
        mark(&mut self.referenced, slot);
        let buffer = old.map_or_else(Shared::default, |old| old.buffer);
        let buffer = renewed(buffer, block);
        self.index.insert(block, Entry { buffer: Arc::clone(&buffer), slot: slot as u32 });
        buffer
    }

    /// A slot nobody holds and nobody used since the hand last passed. `None` if two rounds find
    /// none: the shard then grows past its share until buffers are let go.
    fn find_victim(&mut self) -> Option<usize> {
        for _ in 0..2 * self.slots.len() {
            let position = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            let (word, bit) = (&mut self.referenced[position / 64], 1 << (position % 64));
            if *word & bit != 0 {
                *word &= !bit;
                continue;
            }
            let held = |entry: &Entry| Arc::strong_count(&entry.buffer) > 1;
            if !self.index.get(&self.slots[position]).is_some_and(held) {
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
            let data = std::mem::take(&mut contents.data);
            *contents = Contents { block, data, ..Contents::default() };
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
