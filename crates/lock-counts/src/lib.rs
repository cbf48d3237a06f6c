//! Locks of `parking_lot`, and counters of the standard library, that count how each thread uses them: how often, how
//! long it holds them, how long it waits, and in which of its turns it writes their cache line.
//!
//! It is what `transaction::locks` is with the feature `count-locks`, for measurements only. A thread that does not
//! [record](recording::start) pays for a look at a flag.
//!
//! `unsafe` is here because the traits that `lock_api` makes locks of are unsafe to implement. Each function passes on
//! to the same one of `parking_lot`'s lock, whose promises are therefore kept, and only takes notes beside.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod atomic;
mod raw;
pub mod recording;

use parking_lot::lock_api;
pub use parking_lot::lock_api::{ArcRwLockReadGuard, ArcRwLockWriteGuard};

pub use raw::{RawMutex, RawRwLock};

/// A mutex that is counted.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// What holds a [`Mutex`].
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// A lock for readers or a writer that is counted.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// What holds a [`RwLock`] for reading.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// What holds a [`RwLock`] for writing.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;
