//! The checkpoint lock: shared by open transactions, exclusive while a checkpoint is closed.
//!
//! Every operation takes it, so a single lock would be one cache line that all processors write twice per operation.
//! Instead it consists of stripes, and a thread always takes the same one. Closing a checkpoint takes all stripes that
//! were ever used, in ascending order.
//!
//! Invariants:
//! - No thread holds a stripe at or above `in_use`.
//! - `in_use` grows only under `growth`. The exclusive holder has `growth`, too, so no stripe comes into use during
//!   that time. `in_use` never shrinks, so a thread whose stripe is below it needs no further check.

use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;

use crate::locks::atomic::AtomicUsize;
use crate::locks::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, thread_number};

/// Number of stripes. Threads share stripes only if there are more threads.
const STRIPES: usize = 128;

#[derive(Default)]
pub(crate) struct CheckpointLock {
    stripes: Stripes,
    in_use: CachePadded<AtomicUsize>,
    growth: Mutex<()>,
}

struct Stripes(Box<[CachePadded<RwLock<()>>]>);

impl Default for Stripes {
    fn default() -> Self {
        Self((0..STRIPES).map(|_| CachePadded::default()).collect())
    }
}

/// Shared guard of one open transaction.
pub(crate) type SharedGuard<'l> = RwLockReadGuard<'l, ()>;

/// Exclusive guard: no transaction is open.
pub(crate) struct Exclusive<'l> {
    #[cfg_attr(not(test), expect(dead_code, reason = "held until dropped"))]
    stripes: Vec<RwLockWriteGuard<'l, ()>>,
    #[expect(dead_code, reason = "held until dropped")]
    growth: MutexGuard<'l, ()>,
}

impl CheckpointLock {
    /// Waits until no checkpoint is being closed. Not reentrant.
    pub(crate) fn shared(&self) -> SharedGuard<'_> {
        let stripe = thread_number() % STRIPES;
        if stripe >= self.in_use.load(Ordering::Acquire) {
            self.take_into_use(stripe);
        }
        self.stripes.0[stripe].read()
    }

    #[cold]
    fn take_into_use(&self, stripe: usize) {
        let _growth = self.growth.lock();
        self.in_use.fetch_max(stripe + 1, Ordering::Release);
    }

    /// Waits until no transaction is open, and prevents new ones.
    pub(crate) fn exclusive(&self) -> Exclusive<'_> {
        let growth = self.growth.lock();
        let in_use = self.in_use.load(Ordering::Relaxed);
        let stripes = self.stripes.0[..in_use].iter().map(|stripe| stripe.write()).collect();
        Exclusive { stripes, growth }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::thread;

    use super::*;

    /// More threads than stripes, some of which start while the lock is held exclusively, never overlap with the
    /// exclusive holder.
    #[test]
    fn exclusive_holders_exclude_shared_ones() {
        let lock = CheckpointLock::default();
        let (is_alone, inside, is_over) =
            (AtomicBool::new(false), AtomicU64::new(0), AtomicBool::new(false));
        let share = || {
            let _shared = lock.shared();
            inside.fetch_add(1, Ordering::SeqCst);
            assert!(!is_alone.load(Ordering::SeqCst));
            thread::yield_now();
            inside.fetch_sub(1, Ordering::SeqCst);
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let exclusive = lock.exclusive();
                    is_alone.store(true, Ordering::SeqCst);
                    assert_eq!(inside.load(Ordering::SeqCst), 0);
                    thread::yield_now();
                    is_alone.store(false, Ordering::SeqCst);
                    drop(exclusive);
                }
            });
            let threads: Vec<_> =
                (0..STRIPES + 40).map(|_| scope.spawn(|| (0..50).for_each(|_| share()))).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            is_over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn only_stripes_in_use_are_taken() {
        let lock = CheckpointLock::default();
        assert!(lock.exclusive().stripes.is_empty());
        drop(lock.shared());
        let number = thread_number() % STRIPES;
        assert_eq!(lock.exclusive().stripes.len(), number + 1);
    }
}
