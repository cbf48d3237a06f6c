//! Locks of `parking_lot`, and counters of the standard library, that record their use by each thread: number of uses,
//! hold times, wait times, and the turns in which the thread writes their cache lines.
//!
//! They are the implementation of `engine::locks` with the feature `count-locks`, for measurements only. A thread
//! that does not [record](recording::start) only checks a flag.
//!
//! `unsafe` is necessary because the traits of `lock_api` are unsafe to implement. Each function forwards to the same
//! function of `parking_lot`'s lock, whose guarantees therefore hold, and only records in addition.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod atomic;
mod raw;
pub mod recording;

use parking_lot::lock_api;
pub use parking_lot::lock_api::{ArcRwLockReadGuard, ArcRwLockWriteGuard};

pub use raw::{RawMutex, RawRwLock};

/// A mutex with recording.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// Guard of a [`Mutex`].
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// A readers-writer lock with recording.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// Shared guard of a [`RwLock`].
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// Exclusive guard of a [`RwLock`].
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;
