//! Inodes that the kernel knows, and how often it was told of each.
//!
//! As long as it knows one, the file system keeps it (`FileSystem::open`): an unlinked file that is open,
//! a directory that is somebody's working directory. So no number is used again while the kernel could
//! still mean what it stood for before.
//!
//! Each inode in the table stands for one reference of the file system's: whoever puts it in brings the
//! reference along, and whoever takes it out gives the reference back, both without a lock. Between the
//! two, references of other threads may come and go: the file system counts them all. The table is in
//! shards, so that threads seldom meet; one is locked for a look-up and no longer.

#[cfg(test)]
mod tests;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::Mutex;
use vfs::{FileSystem, Ino, Result};

/// Shards there are: a power of two, far more than threads.
const SHARDS: usize = 256;

/// Inodes in a row that share a shard: about what a block of inodes has.
const NEIGHBOURS: u64 = 16;

/// An odd number whose bits look random: 2^64 divided by the golden ratio.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Inodes that an empty shard keeps room for.
const ROOM_KEPT: usize = 64;

struct Node {
    ino: u64,
    /// How often the kernel was told of it and has not forgotten it since, at least 1.
    nlookup: u64,
}

/// Apart in memory, so that threads on different shards do not share cache lines.
#[derive(Default)]
#[repr(align(64))]
struct Shard(Mutex<HashTable<Node>>);

/// The table. The root is never in it: it is always there.
pub(crate) struct Known {
    shards: Box<[Shard]>,
}

impl Default for Known {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }
}

impl Known {
    /// The kernel is told of an inode once more.
    ///
    /// # Errors
    /// If the file system does not let it be opened; then nothing is counted.
    pub(crate) fn tell(&self, fs: &dyn FileSystem, ino: Ino) -> Result<()> {
        if ino == fs.root() || self.tell_again(ino) {
            return Ok(());
        }
        fs.open(ino)?;
        self.tell_opened(fs, ino)
    }

    /// The kernel is told of an inode, and the caller's reference to it becomes the table's.
    ///
    /// # Errors
    /// If there was one already and the file system cannot take back the other. The inode is counted.
    pub(crate) fn tell_opened(&self, fs: &dyn FileSystem, ino: Ino) -> Result<()> {
        let is_new = {
            let mut shard = self.shard(ino).lock();
            match shard.entry(hash(ino.0), |node| node.ino == ino.0, |node| hash(node.ino)) {
                Entry::Occupied(mut node) => {
                    node.get_mut().nlookup += 1;
                    false
                }
                Entry::Vacant(place) => {
                    place.insert(Node { ino: ino.0, nlookup: 1 });
                    true
                }
            }
        };
        // Another thread was faster.
        if is_new { Ok(()) } else { fs.close(ino) }
    }

    /// Counts, if the inode is in the table.
    fn tell_again(&self, ino: Ino) -> bool {
        let mut shard = self.shard(ino).lock();
        let node = shard.find_mut(hash(ino.0), |node| node.ino == ino.0);
        node.is_some_and(|node| {
            node.nlookup += 1;
            true
        })
    }

    /// The kernel forgets `nlookup` of the times; all, if there were fewer.
    ///
    /// # Errors
    /// If the file system cannot close the inode. It is forgotten all the same.
    pub(crate) fn forget(&self, fs: &dyn FileSystem, ino: Ino, nlookup: u64) -> Result<()> {
        if self.subtract(ino, nlookup) { fs.close(ino) } else { Ok(()) }
    }

    /// Whether these were the last times.
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

    /// The kernel is gone: forgets everything.
    ///
    /// # Errors
    /// The first of the file system's. All inodes are forgotten all the same.
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

    fn shard(&self, ino: Ino) -> &Mutex<HashTable<Node>> {
        // Neighbours share a shard: threads in different directories then rarely meet.
        &self.shards[(hash(ino.0 / NEIGHBOURS) >> 40) as usize % SHARDS].0
    }
}

/// Only their number is bounded by memory, not their choice: whoever can choose all inode numbers has
/// made the image.
const fn hash(ino: u64) -> u64 {
    let mixed = ino.wrapping_mul(MIX);
    // The upper bits are the good ones, and tables look at both ends.
    mixed ^ mixed >> 32
}
