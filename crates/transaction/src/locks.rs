//! The locks and shared counters of the engine and of what is built on it: those of `parking_lot` and of the standard
//! library. With the feature `count-locks`, which is for measurements, they count how they are used.

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

/// Counters that threads share.
pub mod atomic {
    #[cfg(not(feature = "count-locks"))]
    pub use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

    #[cfg(feature = "count-locks")]
    pub use lock_counts::atomic::{AtomicU32, AtomicU64, AtomicUsize};
}
