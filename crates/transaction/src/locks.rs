//! The locks and shared counters of the engine and of what is built on it: those of `parking_lot` and of the standard
//! library; and what numbers threads, for what each has of its own. With the feature `count-locks`, which is for measurements, they count how they are used.

#[cfg(not(feature = "count-locks"))]
pub use parking_lot::{
    ArcRwLockReadGuard, ArcRwLockWriteGuard, Mutex, MutexGuard, RawRwLock, RwLock, RwLockReadGuard,
    RwLockWriteGuard,
};

#[cfg(feature = "count-locks")]
pub use lock_counts::{
    ArcRwLockReadGuard, ArcRwLockWriteGuard, Mutex, MutexGuard, RawRwLock, RwLock, RwLockReadGuard,
    RwLockWriteGuard,
};

/// The number of the calling thread: threads get them in the order in which they first ask, which spreads them evenly over
/// things of which each is to have its own. No hash of their names would promise that.
pub fn thread_number() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// Counters that threads share.
pub mod atomic {
    #[cfg(not(feature = "count-locks"))]
    pub use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

    #[cfg(feature = "count-locks")]
    pub use lock_counts::atomic::{AtomicU32, AtomicU64, AtomicUsize};
}
