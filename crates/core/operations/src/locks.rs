//! Inode locks, shared by all formats.
//!
//! An inode's lock is one of a fixed number of stripes, selected by the inode number, so that locking does not
//! allocate. Two inodes may share a stripe. Threads wait for stripes in ascending order only: a caller that needs
//! several inodes locks them in one call. It may add another inode later, but waits for its stripe only if that is
//! above all held ones.

use crossbeam_utils::CachePadded;
use engine::locks::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

use vfs::Ino;

/// Number of consecutive inodes with adjoining locks. A thread that works in one directory stays within a row, and
/// other threads do not touch its cache lines.
const ROW: usize = 16;

/// Number of rows. Of 128 active threads, about one in eight shares a row with another.
const ROWS: usize = 1024;

/// Locks of consecutive inodes, on separate cache lines.
type LockRow = CachePadded<[RwLock<()>; ROW]>;

/// The locks of all inodes of a file system.
pub struct InodeLocks {
    rows: Box<[LockRow]>,
    /// Held while a directory gets another parent. Nothing else changes the ancestors of a directory.
    moves: Mutex<()>,
}

/// Inodes locked exclusively.
pub struct Locked<'a> {
    locks: &'a InodeLocks,
    held: SmallVec<[(usize, RwLockWriteGuard<'a, ()>); 4]>,
}

impl Default for InodeLocks {
    fn default() -> Self {
        Self::new()
    }
}

impl InodeLocks {
    /// Creates unlocked locks.
    pub fn new() -> Self {
        Self { rows: (0..ROWS).map(|_| LockRow::default()).collect(), moves: Mutex::new(()) }
    }

    fn stripe(ino: Ino) -> usize {
        let row = (ino.0 / ROW as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        row as usize % ROWS * ROW + ino.0 as usize % ROW
    }

    fn lock(&self, stripe: usize) -> &RwLock<()> {
        &self.rows[stripe / ROW][stripe % ROW]
    }

    /// Locks an inode for reading.
    pub fn shared(&self, ino: Ino) -> RwLockReadGuard<'_, ()> {
        self.lock(Self::stripe(ino)).read()
    }

    /// Locks inodes exclusively.
    pub fn exclusive(&self, inos: &[Ino]) -> Locked<'_> {
        let mut stripes: SmallVec<[usize; 4]> = inos.iter().map(|&i| Self::stripe(i)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let held = stripes.into_iter().map(|s| (s, self.lock(s).write())).collect();
        Locked { locks: self, held }
    }

    /// Takes the lock of moves: no directory changes its parent until it is released. Must be taken before any inode
    /// lock.
    pub(crate) fn moves(&self) -> MutexGuard<'_, ()> {
        self.moves.lock()
    }
}

impl Locked<'_> {
    /// Locks another inode. Returns false if its stripe is out of order and held by another thread. The caller must
    /// then release everything and lock all inodes again in one call.
    #[must_use]
    pub(crate) fn add(&mut self, ino: Ino) -> bool {
        let stripe = InodeLocks::stripe(ino);
        if self.held.iter().any(|(held, _)| *held == stripe) {
            return true;
        }
        let lock = self.locks.lock(stripe);
        let in_order = self.held.iter().all(|(held, _)| *held < stripe);
        let guard = if in_order { Some(lock.write()) } else { lock.try_write() };
        self.held.extend(guard.map(|guard| (stripe, guard)));
        self.held.last().is_some_and(|(held, _)| *held == stripe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns inodes with ascending stripes.
    fn ascending() -> Vec<Ino> {
        let mut inos: Vec<_> = (1..20).map(Ino).collect();
        inos.sort_by_key(|&ino| InodeLocks::stripe(ino));
        inos.dedup_by_key(|ino| InodeLocks::stripe(*ino));
        inos
    }

    #[test]
    fn locks_out_of_order_are_only_tried() {
        let (locks, inos) = (InodeLocks::new(), ascending());
        let other = locks.exclusive(&[inos[0]]);
        let mut held = locks.exclusive(&[inos[2]]);
        assert!(!held.add(inos[0]));
        assert!(held.add(inos[1]) && held.add(inos[3]) && held.add(inos[2]));
        drop(other);
        assert!(held.add(inos[0]));
        assert_eq!(held.held.len(), 4);
    }

    #[test]
    fn one_stripe_is_taken_once() {
        let locks = InodeLocks::new();
        let mut held = locks.exclusive(&[Ino(7), Ino(7)]);
        assert!(held.add(Ino(7)));
        assert_eq!(held.held.len(), 1);
    }
}
