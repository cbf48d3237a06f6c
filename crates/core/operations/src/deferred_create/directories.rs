//! Large directories in which files were recently created.
//!
//! The table is sharded, with each lock on a separate cache line, so that threads in different directories do not share
//! a line.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;
use engine::locks::RwLock;
use engine::locks::atomic::AtomicUsize;
use engine::numbers::NumberMap;
use vfs::Ino;

use super::SharedDirectory;
use super::table::DeferredDirectory;

const SHARDS: usize = 64;

/// Maximum number of directories in the table without deferred files.
const DIRECTORIES_MAX: usize = 64;

type Shard<H> = CachePadded<RwLock<NumberMap<u64, SharedDirectory<H>>>>;

pub(super) struct Directories<H> {
    shards: Box<[Shard<H>]>,
    /// Number of directories. It changes rarely, and every operation reads it.
    count: AtomicUsize,
}

impl<H> Default for Directories<H> {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        Self { shards, count: AtomicUsize::new(0) }
    }
}

impl<H> Directories<H> {
    fn shard(&self, dir: Ino) -> &Shard<H> {
        &self.shards[(dir.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % SHARDS]
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    pub(super) fn has(&self, dir: Ino) -> bool {
        !self.is_empty() && self.shard(dir).read().contains_key(&dir.0)
    }

    pub(super) fn get(&self, dir: Ino) -> Option<SharedDirectory<H>> {
        if self.is_empty() { None } else { self.shard(dir).read().get(&dir.0).cloned() }
    }

    /// Calls `each` with every directory, under the shared lock of its shard.
    pub(super) fn for_each(&self, mut each: impl FnMut(Ino, &SharedDirectory<H>)) {
        for shard in &self.shards {
            shard.read().iter().for_each(|(&dir, directory)| each(Ino(dir), directory));
        }
    }

    /// Adds a directory. May drop another one in which nothing is deferred.
    pub(super) fn remember(&self, dir: Ino, directory: DeferredDirectory<H>) -> SharedDirectory<H> {
        if self.count.load(Ordering::Relaxed) >= DIRECTORIES_MAX {
            self.forget_one();
        }
        let shared = SharedDirectory::new(directory.into());
        if self.shard(dir).write().insert(dir.0, shared.clone()).is_none() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        shared
    }

    fn forget_one(&self) {
        let is_idle = |shared: &SharedDirectory<H>| {
            Arc::strong_count(shared) == 1
                && shared.try_lock().is_some_and(|directory| directory.deferred == 0)
        };
        for shard in &self.shards {
            let mut shard = shard.write();
            let idle = shard.iter().find_map(|(&dir, shared)| is_idle(shared).then_some(dir));
            if let Some(dir) = idle {
                shard.remove(&dir);
                self.count.fetch_sub(1, Ordering::Relaxed);
                return;
            }
        }
    }
}
