//! Locks of `parking_lot`, and counters of the standard library, that record their use by each thread: number of uses,
//! hold times, wait times, and the turns in which the thread writes their cache lines.
//!
//! They are the implementation of [`locks`](crate::locks) with the feature `count-locks`, for measurements only. A
//! thread that does not [record](recording::start) only checks a flag.

pub mod atomic;
pub mod recording;

use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::RawRwLock;
use recording::Hold;

/// Called at the beginning (true) and the end of work that a thread shares with others.
static SHARED_WORK: OnceLock<fn(bool)> = OnceLock::new();

/// Sets a function that each thread that leads others calls before (true) and after its share of their work. Only the
/// first call has an effect.
pub fn observe_shared_work(observer: fn(bool)) {
    let _ = SHARED_WORK.set(observer);
}

/// Guard of the share of a leading thread.
#[cfg(feature = "count-locks")]
pub(crate) struct SharedWork;

#[cfg(feature = "count-locks")]
impl SharedWork {
    pub(crate) fn begin() -> Self {
        if let Some(observer) = SHARED_WORK.get() {
            observer(true);
        }
        Self
    }
}

#[cfg(feature = "count-locks")]
impl Drop for SharedWork {
    fn drop(&mut self) {
        if let Some(observer) = SHARED_WORK.get() {
            observer(false);
        }
    }
}

/// A hold of a lock. It stands before the lock's guard in each guard, so its end is recorded before the release.
struct HoldRecord(usize);

impl HoldRecord {
    /// Records the hold of a lock that was free.
    #[track_caller]
    fn new<L>(lock: &L, hold: Hold) -> Self {
        Self::take(lock, hold, Some(()), || ()).0
    }

    /// Returns the guard of a lock, from `attempt` or else from `wait`, and records the hold.
    #[track_caller]
    fn take<L, G>(lock: &L, hold: Hold, attempt: Option<G>, wait: impl FnOnce() -> G) -> (Self, G) {
        let (place, address) = (Location::caller(), std::ptr::from_ref(lock).addr());
        let since = attempt.is_none().then(Instant::now);
        let guard = attempt.unwrap_or_else(wait);
        recording::acquired(address, hold, place, since.map(|since| since.elapsed()));
        (Self(address), guard)
    }
}

impl Drop for HoldRecord {
    fn drop(&mut self) {
        recording::released(self.0);
    }
}

/// Declares a guard, with the fields that it has in addition to the hold and the lock's own guard.
macro_rules! guard {
    ($(#[$doc:meta])* $name:ident<$($life:lifetime)?>, $guard:ty, { $($field:ident: $of:ty)? }) => {
        $(#[$doc])*
        pub struct $name<$($life,)? T> {
            _held: HoldRecord,
            guard: $guard,
            $($field: $of,)?
        }

        impl<$($life,)? T> Deref for $name<$($life,)? T> {
            type Target = T;

            fn deref(&self) -> &T {
                &self.guard
            }
        }
    };
}

guard!(
    /// Guard of a [`Mutex`].
    MutexGuard<'a>, parking_lot::MutexGuard<'a, T>, {}
);
guard!(
    /// Shared guard of a [`RwLock`].
    RwLockReadGuard<'a>, parking_lot::RwLockReadGuard<'a, T>, {}
);
guard!(
    /// Exclusive guard of a [`RwLock`].
    RwLockWriteGuard<'a>, parking_lot::RwLockWriteGuard<'a, T>, {}
);
guard!(
    /// Shared guard that owns its [`RwLock`].
    ArcRwLockReadGuard<>, parking_lot::ArcRwLockReadGuard<RawRwLock, T>, { _lock: Arc<RwLock<T>> }
);
guard!(
    /// Exclusive guard that owns its [`RwLock`].
    ArcRwLockWriteGuard<>, parking_lot::ArcRwLockWriteGuard<RawRwLock, T>, { lock: Arc<RwLock<T>> }
);

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> DerefMut for ArcRwLockWriteGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> ArcRwLockWriteGuard<T> {
    /// Returns the lock of a guard.
    pub fn rwlock(guard: &Self) -> &Arc<RwLock<T>> {
        &guard.lock
    }

    /// Makes a guard shared. The whole hold counts as exclusive, which overestimates it.
    pub fn downgrade(guard: Self) -> ArcRwLockReadGuard<T> {
        let Self { _held, guard, lock } = guard;
        let guard = parking_lot::ArcRwLockWriteGuard::downgrade(guard);
        ArcRwLockReadGuard { _held, guard, _lock: lock }
    }
}

/// A mutex with recording.
#[derive(Debug, Default)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    /// Locks the mutex.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let (held, guard) =
            HoldRecord::take(self, Hold::Exclusive, self.0.try_lock(), || self.0.lock());
        MutexGuard { _held: held, guard }
    }

    /// Locks the mutex, unless it is locked.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = self.0.try_lock()?;
        Some(MutexGuard { _held: HoldRecord::new(self, Hold::Exclusive), guard })
    }

    /// Returns whether it is locked.
    pub fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    /// Returns the value, which nothing else uses.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

/// A readers-writer lock with recording.
#[derive(Debug, Default)]
pub struct RwLock<T>(Arc<parking_lot::RwLock<T>>);

impl<T> RwLock<T> {
    /// Creates an unlocked lock.
    pub fn new(value: T) -> Self {
        Self(Arc::new(parking_lot::RwLock::new(value)))
    }

    /// Locks it shared.
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let (held, guard) =
            HoldRecord::take(self, Hold::Shared, self.0.try_read(), || self.0.read());
        RwLockReadGuard { _held: held, guard }
    }

    /// Locks it exclusively.
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let (held, guard) =
            HoldRecord::take(self, Hold::Exclusive, self.0.try_write(), || self.0.write());
        RwLockWriteGuard { _held: held, guard }
    }

    /// Locks it exclusively, unless it is locked.
    #[track_caller]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let guard = self.0.try_write()?;
        Some(RwLockWriteGuard { _held: HoldRecord::new(self, Hold::Exclusive), guard })
    }

    /// Returns the value, which nothing else uses.
    ///
    /// # Panics
    /// Never: a guard that shares the inner lock also owns this one, and releases the inner lock first.
    pub fn get_mut(&mut self) -> &mut T {
        Arc::get_mut(&mut self.0).expect("no guard outlives the lock").get_mut()
    }

    /// Locks it shared, with a guard that owns it.
    #[track_caller]
    pub fn read_arc(self: &Arc<Self>) -> ArcRwLockReadGuard<T> {
        let lock = &self.0;
        let (held, guard) =
            HoldRecord::take(&**self, Hold::Shared, lock.try_read_arc(), || lock.read_arc());
        ArcRwLockReadGuard { _held: held, guard, _lock: Arc::clone(self) }
    }

    /// Locks it exclusively, with a guard that owns it.
    #[track_caller]
    pub fn write_arc(self: &Arc<Self>) -> ArcRwLockWriteGuard<T> {
        let lock = &self.0;
        let (held, guard) =
            HoldRecord::take(&**self, Hold::Exclusive, lock.try_write_arc(), || lock.write_arc());
        ArcRwLockWriteGuard { _held: held, guard, lock: Arc::clone(self) }
    }
}
