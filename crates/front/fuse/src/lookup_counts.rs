//! Inodes known to the kernel, with their look-up counts.
//!
//! As long as the kernel knows an inode, the file system keeps it (`FileSystem::open`): for example an unlinked open
//! file, or the working directory of a process. So an inode number is never reused while the kernel could still refer
//! to the old inode.
//!
//! Each inode in the table holds one reference in the file system. The thread that inserts it supplies the reference,
//! and the thread that removes it drops the reference, both without a lock. In between, references of other threads may
//! come and go, because the file system counts them. The table is sharded, so that contention is rare; a shard is
//! locked for one access only.

#[cfg(test)]
mod tests;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::Mutex;
use vfs::{FileSystem, Ino, Result};

/// Number of shards: a power of two, far more than threads.
const SHARDS: usize = 256;

/// Number of consecutive inodes in a shard: about those of a block of inodes.
const NEIGHBOURS: u64 = 16;

/// Multiplier of Fibonacci hashing: 2^64 divided by the golden ratio.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Capacity that an empty shard keeps, in inodes.
const ROOM_KEPT: usize = 64;

struct LookupCount {
    ino: u64,
    /// Number of look-ups that the kernel has not forgotten, at least 1.
    nlookup: u64,
}

/// Aligned to separate cache lines for threads on different shards.
#[derive(Default)]
#[repr(align(64))]
struct Shard(Mutex<HashTable<LookupCount>>);

/// The table. It never contains the root, which is always known.
pub(crate) struct LookupCounts {
    shards: Box<[Shard]>,
}

impl Default for LookupCounts {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }
}

impl LookupCounts {
    /// Counts a look-up of an inode.
    ///
    /// # Errors
    /// If the file system cannot open it; then nothing is counted.
    pub(crate) fn tell(&self, fs: &dyn FileSystem, ino: Ino) -> Result<()> {
        if ino == fs.root() || self.tell_again(ino) {
            return Ok(());
        }
        fs.open(ino)?;
        self.tell_opened(fs, ino)
    }

    /// Counts a look-up of an inode, and takes over the caller's reference.
    ///
    /// # Errors
    /// If the table already has a reference and the file system cannot close the other one. The look-up is counted.
    pub(crate) fn tell_opened(&self, fs: &dyn FileSystem, ino: Ino) -> Result<()> {
        let is_new = {
            let mut shard = self.shard(ino).lock();
            match shard.entry(hash(ino.0), |node| node.ino == ino.0, |node| hash(node.ino)) {
                Entry::Occupied(mut node) => {
                    node.get_mut().nlookup += 1;
                    false
                }
                Entry::Vacant(place) => {
                    place.insert(LookupCount { ino: ino.0, nlookup: 1 });
                    true
                }
            }
        };
        // Another thread was faster.
        if is_new { Ok(()) } else { fs.close(ino) }
    }

    /// Counts a look-up, if the inode is in the table. Returns whether it is.
    fn tell_again(&self, ino: Ino) -> bool {
        let mut shard = self.shard(ino).lock();
        let node = shard.find_mut(hash(ino.0), |node| node.ino == ino.0);
        node.is_some_and(|node| {
            node.nlookup += 1;
            true
        })
    }

    /// Subtracts `nlookup` look-ups, at most all.
    ///
    /// # Errors
    /// If the file system cannot close the inode. It is removed even then.
    pub(crate) fn forget(&self, fs: &dyn FileSystem, ino: Ino, nlookup: u64) -> Result<()> {
        if self.subtract(ino, nlookup) { fs.close(ino) } else { Ok(()) }
    }

    /// Subtracts look-ups. Returns whether they were the last ones.
    fn subtract(&self, ino: Ino, nlookup: u64) -> bool {
        let mut shard = self.shard(ino).lock();
        let Ok(mut node) = shard.find_entry(hash(ino.0), |node| node.ino == ino.0) else {
            return false;
        };
        if node.get().nlookup > nlookup {
            node.get_mut().nlookup -= nlookup;
            return false;
        }
        node.remove();
        if shard.is_empty() && shard.capacity() > ROOM_KEPT {
            *shard = HashTable::new();
        }
        true
    }

    /// Removes everything after the kernel has disconnected.
    ///
    /// # Errors
    /// The first error of the file system. All inodes are removed even then.
    pub(crate) fn close_all(&self, fs: &dyn FileSystem) -> Result<()> {
        let mut outcome = Ok(());
        for shard in &self.shards {
            let nodes = std::mem::take(&mut *shard.0.lock());
            for node in nodes {
                outcome = outcome.and(fs.close(Ino(node.ino)));
            }
        }
        outcome
    }

    fn shard(&self, ino: Ino) -> &Mutex<HashTable<LookupCount>> {
        // Consecutive inodes share a shard, so threads in different directories rarely contend.
        &self.shards[(hash(ino.0 / NEIGHBOURS) >> 40) as usize % SHARDS].0
    }
}

/// Does not resist chosen inputs: only the author of an image can choose inode numbers.
const fn hash(ino: u64) -> u64 {
    let mixed = ino.wrapping_mul(MIX);
    // The upper bits are mixed best, and hash tables use both ends.
    mixed ^ mixed >> 32
}
