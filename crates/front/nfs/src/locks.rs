//! Locks of changes, so that the attributes before and after a change enclose this change alone (weak cache consistency
//! in RFC 1813, section 2.6).

use parking_lot::{Mutex, MutexGuard};
use vfs::Ino;

/// Number of locks. Inodes share them by a hash of their number.
const LOCKS: usize = 256;

/// Maximum number of inodes of one change: the directories of a rename.
pub(crate) const INODES_MAX: usize = 2;

/// Multiplier of Fibonacci hashing: 2^64 divided by the golden ratio.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The locks. A thread holds those of one change only, taken in ascending order.
pub(crate) struct ChangeLocks {
    locks: Box<[Mutex<()>]>,
}

impl Default for ChangeLocks {
    fn default() -> Self {
        Self { locks: (0..LOCKS).map(|_| Mutex::default()).collect() }
    }
}

impl ChangeLocks {
    /// Locks these inodes, which may be equal.
    pub(crate) fn lock(
        &self,
        inodes: [Ino; INODES_MAX],
    ) -> [Option<MutexGuard<'_, ()>>; INODES_MAX] {
        let mut slots = inodes.map(slot);
        slots.sort_unstable();
        let second = (slots[0] != slots[1]).then_some(slots[1]);
        let first = Some(self.locks[slots[0]].lock());
        [first, second.map(|slot| self.locks[slot].lock())]
    }
}

fn slot(ino: Ino) -> usize {
    (ino.0.wrapping_mul(MIX) >> 32) as usize % LOCKS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_lock_pairs_in_any_order() {
        let locks = ChangeLocks::default();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let locks = &locks;
                scope.spawn(move || {
                    for number in 0..2000 {
                        let (a, b) = (Ino(number % 7 + thread), Ino(number % 5));
                        drop(locks.lock(if number % 2 == 0 { [a, b] } else { [b, a] }));
                        drop(locks.lock([a, a]));
                    }
                });
            }
        });
    }
}
