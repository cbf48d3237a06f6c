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

struct Slot {
    block: u64,
    buffer: Shared,
    referenced: bool,
}

#[derive(Default)]
struct Shard {
    index: HashMap<u64, u32, BuildHasherDefault<BlockHasher>>,
    slots: Vec<Slot>,
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
        if let Some(&slot) = shard.index.get(&block) {
            let slot = &mut shard.slots[slot as usize];
            slot.referenced = true;
            return Arc::clone(&slot.buffer);
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

impl Shard {
    fn insert(&mut self, block: u64, slots_max: usize) -> Shared {
        let victim = if self.slots.len() < slots_max { None } else { self.find_victim() };
        let Some(position) = victim else {
            let buffer = Arc::new(RwLock::new(Contents { block, ..Contents::default() }));
            self.index.insert(block, self.slots.len() as u32);
            self.slots.push(Slot { block, buffer: Arc::clone(&buffer), referenced: true });
            return buffer;
        };
        let slot = &mut self.slots[position];
        self.index.remove(&slot.block);
        self.index.insert(block, position as u32);
        slot.block = block;
        slot.referenced = true;
        if let Some(lock) = Arc::get_mut(&mut slot.buffer) {
            // The victim's memory serves again, whatever it held.
            let contents = lock.get_mut();
            let data = std::mem::take(&mut contents.data);
            *contents = Contents { block, data, ..Contents::default() };
        }
        Arc::clone(&slot.buffer)
    }

    /// A slot nobody holds and nobody used since the hand last passed. `None` if two rounds find
    /// none: the shard then grows past its share until buffers are let go.
    fn find_victim(&mut self) -> Option<usize> {
        for _ in 0..2 * self.slots.len() {
            let position = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &mut self.slots[position];
            if !std::mem::take(&mut slot.referenced) && Arc::strong_count(&slot.buffer) == 1 {
                return Some(position);
            }
        }
        None
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
