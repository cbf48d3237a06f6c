//! Locks of what stays right when a thread panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The lock of something that stays right when a thread panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
