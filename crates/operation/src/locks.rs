//! Locks of inodes, the same for every format.
//!
//! An inode's lock is one of a fixed number of stripes, chosen by the inode's number, so that
//! locking allocates nothing. Two inodes may share a stripe. Stripes are waited for in ascending
//! order only: who needs several inodes takes them in one call, and who learns of another one later
//! may wait for its stripe only if that is above all it holds.

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;
use transaction::locks::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use vfs::Ino;

/// Inodes in a row whose locks lie together: a thread at work in one directory stays on them, and
/// others do not touch their cache lines.
const ROW: usize = 16;

/// Rows of locks there are: so many that of 128 threads at work, one in eight finds another in its row.
const ROWS: usize = 1024;

/// Locks of neighbours, on cache lines of their own.
type Row = CachePadded<[RwLock<()>; ROW]>;

/// The locks of all inodes of a file system.
pub struct InodeLocks {
    rows: Box<[Row]>,
    /// Held while a directory gets another parent: nothing else changes who is below whom.
    moves: Mutex<()>,
}

/// Inodes locked for change.
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
    /// Locks that nobody holds.
    pub fn new() -> Self {
        Self { rows: (0..ROWS).map(|_| Row::default()).collect(), moves: Mutex::new(()) }
    }

    fn stripe(ino: Ino) -> usize {
        let row = (ino.0 / ROW as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        row as usize % ROWS * ROW + ino.0 as usize % ROW
    }

    fn lock(&self, stripe: usize) -> &RwLock<()> {
        &self.rows[stripe / ROW][stripe % ROW]
    }

    /// Waits until nobody changes an inode, and keeps it so.
    pub fn shared(&self, ino: Ino) -> RwLockReadGuard<'_, ()> {
        self.lock(Self::stripe(ino)).read()
    }

    /// Locks inodes for change.
    pub fn exclusive(&self, inos: &[Ino]) -> Locked<'_> {
        let mut stripes: SmallVec<[usize; 4]> = inos.iter().map(|&i| Self::stripe(i)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let held = stripes.into_iter().map(|s| (s, self.lock(s).write())).collect();
        Locked { locks: self, held }
    }

    /// Waits until no directory is being moved to another parent, and keeps it so. To be taken
    /// before any inode.
    pub fn moves(&self) -> MutexGuard<'_, ()> {
        self.moves.lock()
    }
}

impl Locked<'_> {
    /// Locks one more inode. False if it cannot be waited for in order and somebody else has it:
    /// then everything must be let go and locked again in one call.
    #[must_use]
    pub fn add(&mut self, ino: Ino) -> bool {
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

    /// Inodes whose stripes ascend.
    fn ascending() -> Vec<Ino> {
        let mut inos: Vec<_> = (1..20).map(Ino).collect();
        inos.sort_by_key(|&ino| InodeLocks::stripe(ino));
        inos.dedup_by_key(|ino| InodeLocks::stripe(*ino));
        inos
    }

    #[test]
    fn what_is_out_of_order_is_not_waited_for() {
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
