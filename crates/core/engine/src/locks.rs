//! Locks and shared counters of the engine and its users (those of `parking_lot` and of the standard library), and
//! numbers of threads for per-thread data. With the feature `count-locks`, which is for measurements, the locks count
//! their use.

#[cfg(not(feature = "count-locks"))]
pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(feature = "count-locks")]
pub use crate::lock_counts::{
    ArcRwLockReadGuard, ArcRwLockWriteGuard, Mutex, MutexGuard, RwLock, RwLockReadGuard,
    RwLockWriteGuard,
};

/// Shared guard that owns its lock.
#[cfg(not(feature = "count-locks"))]
pub(crate) type ArcRwLockReadGuard<T> = parking_lot::ArcRwLockReadGuard<parking_lot::RawRwLock, T>;

/// Exclusive guard that owns its lock.
#[cfg(not(feature = "count-locks"))]
pub(crate) type ArcRwLockWriteGuard<T> =
    parking_lot::ArcRwLockWriteGuard<parking_lot::RawRwLock, T>;

/// Returns the number of the calling thread. Numbers are assigned in the order of the first calls, so they spread
/// threads evenly over per-thread slots. A hash of the thread ID would not guarantee that.
pub fn thread_number() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// Counters shared by threads.
pub mod atomic {
    #[cfg(not(feature = "count-locks"))]
    pub use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

    #[cfg(feature = "count-locks")]
    pub use crate::lock_counts::atomic::{AtomicU32, AtomicU64, AtomicUsize};
}
