//! Locks of inodes.
//!
//! An inode's lock is one of a fixed number, chosen by the inode's number, so that locking
//! allocates nothing. Two inodes may share a lock; who needs several takes them in one call, which
//! takes each lock once and in a fixed order.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;
use vfs::Ino;

/// Locks there are. Far more than threads, so that sharing one is rare.
const STRIPES: usize = 1024;

/// The locks of all inodes of a file system.
pub(crate) struct InodeLocks {
    stripes: Box<[RwLock<()>]>,
}

/// Inodes locked for change.
pub(crate) type Locked<'a> = SmallVec<[RwLockWriteGuard<'a, ()>; 2]>;

impl InodeLocks {
    pub(crate) fn new() -> Self {
        Self { stripes: (0..STRIPES).map(|_| RwLock::new(())).collect() }
    }

    fn stripe(ino: Ino) -> usize {
        (ino.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % STRIPES
    }

    /// Waits until nobody changes an inode, and keeps it so.
    pub(crate) fn shared(&self, ino: Ino) -> RwLockReadGuard<'_, ()> {
        self.stripes[Self::stripe(ino)].read()
    }

    /// Locks inodes for change.
    pub(crate) fn exclusive(&self, inos: &[Ino]) -> Locked<'_> {
        let mut stripes: SmallVec<[usize; 4]> = inos.iter().map(|&i| Self::stripe(i)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        stripes.into_iter().map(|s| self.stripes[s].write()).collect()
    }
}
