//! Inodes reserved in memory for deferred files. They are free on disk, and no other operation may allocate them.
//! Chunks with such inodes are not freed.
//!
//! An operation that holds the group may allocate inodes that are free in its trees and not reserved. A reservation is
//! released only after a committed operation allocated the inode, or if it is not needed.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use engine::locks::Mutex;
use engine::locks::atomic::AtomicU32;

use crate::format::address::AgIno;
use crate::format::geometry::INODES_PER_CHUNK;

/// Reserved inodes of a group.
#[derive(Default)]
pub(crate) struct ReservedInodes {
    count: AtomicU32,
    /// Inode at which the search for the next ones continues.
    next: AtomicU32,
    /// Masks by the first inodes of chunks, which are multiples of the chunk size.
    chunks: Mutex<HashMap<u32, u64>>,
}

impl ReservedInodes {
    /// Returns the number of reserved inodes.
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the inode number from which the next reservation searches.
    pub(super) fn next(&self) -> AgIno {
        AgIno(self.next.load(Ordering::Relaxed))
    }

    /// Returns the mask of reserved inodes of a chunk.
    pub(super) fn of(&self, chunk: AgIno) -> u64 {
        self.chunks.lock().get(&chunk.0).copied().unwrap_or_default()
    }

    /// Returns whether a chunk has reserved inodes.
    pub(super) fn has_some_of(&self, chunk: AgIno) -> bool {
        self.count() > 0 && self.of(chunk) != 0
    }

    /// Reserves inodes of a chunk. The group must be held.
    pub(crate) fn keep(&self, chunk: AgIno, mask: u64) {
        *self.chunks.lock().entry(chunk.0).or_default() |= mask;
        self.count.fetch_add(mask.count_ones(), Ordering::Relaxed);
        self.next.store(chunk.0.saturating_add(INODES_PER_CHUNK), Ordering::Relaxed);
    }

    /// Releases a reserved inode.
    pub(crate) fn let_go(&self, ino: AgIno) {
        let (start, bit) = (ino.0 & !(INODES_PER_CHUNK - 1), 1 << (ino.0 % INODES_PER_CHUNK));
        let mut chunks = self.chunks.lock();
        let Some(mask) = chunks.get_mut(&start).filter(|mask| **mask & bit != 0) else { return };
        *mask &= !bit;
        if *mask == 0 {
            chunks.remove(&start);
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_are_kept_until_they_are_let_go_of() {
        let kept = ReservedInodes::default();
        kept.keep(AgIno(128), 0b101);
        kept.keep(AgIno(128), 1 << 63);
        assert_eq!((kept.count(), kept.next()), (3, AgIno(192)));
        for ino in [128, 129, 191, 191] {
            kept.let_go(AgIno(ino));
        }
        assert_eq!((kept.count(), kept.of(AgIno(128)), kept.of(AgIno(64))), (1, 0b100, 0));
        kept.let_go(AgIno(130));
        assert_eq!((kept.count(), kept.of(AgIno(128))), (0, 0));
    }
}
