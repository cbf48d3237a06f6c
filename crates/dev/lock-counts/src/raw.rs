//! The raw locks.

use std::panic::Location;
use std::time::Instant;

use parking_lot::lock_api;

use crate::recording::{self, Hold};

/// The raw lock of a [`Mutex`](crate::Mutex).
pub struct RawMutex(parking_lot::RawMutex);

/// The raw lock of a [`RwLock`](crate::RwLock).
pub struct RawRwLock(parking_lot::RawRwLock);

/// Returns the address of a lock, which identifies it.
fn address<T>(lock: &T) -> usize {
    std::ptr::from_ref(lock).addr()
}

/// Records a lock that was tried, if `is_held`.
fn take(
    lock: usize,
    hold: Hold,
    place: &'static Location<'static>,
    is_held: bool,
    wait: impl FnOnce(),
) {
    if is_held {
        recording::acquired(lock, hold, place, None);
        return;
    }
    let since = Instant::now();
    wait();
    recording::acquired(lock, hold, place, Some(since.elapsed()));
}

// SAFETY: the lock is `parking_lot`'s, which guarantees exclusion as the trait requires; recording does not affect
// that.
unsafe impl lock_api::RawMutex for RawMutex {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait requires it")]
    const INIT: Self = Self(parking_lot::RawMutex::INIT);

    type GuardMarker = <parking_lot::RawMutex as lock_api::RawMutex>::GuardMarker;

    #[track_caller]
    fn lock(&self) {
        let is_held = self.0.try_lock();
        take(address(self), Hold::Exclusive, Location::caller(), is_held, || self.0.lock());
    }

    #[track_caller]
    fn try_lock(&self) -> bool {
        let is_held = self.0.try_lock();
        if is_held {
            recording::acquired(address(self), Hold::Exclusive, Location::caller(), None);
        }
        is_held
    }

    unsafe fn unlock(&self) {
        recording::released(address(self));
        // SAFETY: the caller holds the lock, as the trait requires.
        unsafe { self.0.unlock() };
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

// SAFETY: as for the mutex.
unsafe impl lock_api::RawRwLock for RawRwLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait requires it")]
    const INIT: Self = Self(parking_lot::RawRwLock::INIT);

    type GuardMarker = <parking_lot::RawRwLock as lock_api::RawRwLock>::GuardMarker;

    #[track_caller]
    fn lock_shared(&self) {
        let is_held = self.0.try_lock_shared();
        take(address(self), Hold::Shared, Location::caller(), is_held, || self.0.lock_shared());
    }

    #[track_caller]
    fn try_lock_shared(&self) -> bool {
        let is_held = self.0.try_lock_shared();
        if is_held {
            recording::acquired(address(self), Hold::Shared, Location::caller(), None);
        }
        is_held
    }

    unsafe fn unlock_shared(&self) {
        recording::released(address(self));
        // SAFETY: the caller holds the lock shared, as the trait requires.
        unsafe { self.0.unlock_shared() };
    }

    #[track_caller]
    fn lock_exclusive(&self) {
        let is_held = self.0.try_lock_exclusive();
        take(address(self), Hold::Exclusive, Location::caller(), is_held, || {
            self.0.lock_exclusive();
        });
    }

    #[track_caller]
    fn try_lock_exclusive(&self) -> bool {
        let is_held = self.0.try_lock_exclusive();
        if is_held {
            recording::acquired(address(self), Hold::Exclusive, Location::caller(), None);
        }
        is_held
    }

    unsafe fn unlock_exclusive(&self) {
        recording::released(address(self));
        // SAFETY: the caller holds the lock exclusively, as the trait requires.
        unsafe { self.0.unlock_exclusive() };
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

// SAFETY: as for the mutex.
unsafe impl lock_api::RawRwLockDowngrade for RawRwLock {
    unsafe fn downgrade(&self) {
        // The whole hold counts as exclusive, which overestimates it. SAFETY: the caller holds the lock exclusively, as
        // the trait requires.
        unsafe { self.0.downgrade() };
    }
}
