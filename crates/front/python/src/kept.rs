//! Values that belong to an open image, and the rules for using and dropping them.
//!
//! Dropping such a value can write to the image, because the last drop closes it. It must not be dropped in three
//! situations:
//! - In a child after a fork. The image belongs to the parent; the child has a copy of its memory with locks held by
//!   threads that do not exist in the child. The copy is neither used nor dropped.
//! - While the interpreter's lock is held. Another thread may hold a lock of the engine and wait for the interpreter's
//!   lock, in order to call a Python device.
//! - During a call of such a device, by objects that the garbage collector finds. The engine waits for the device and
//!   holds locks. Such values are dropped by the next call.

use std::any::Any;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pyo3::Python;

use crate::device;
use crate::locks::lock;

/// Number of forks from the first process to this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Values whose drop was deferred, with their generation.
static GRAVES: Mutex<Vec<(u64, Box<dyn Any + Send>)>> = Mutex::new(Vec::new());
static HAS_GRAVES: AtomicBool = AtomicBool::new(false);

/// Records that this process is a forked child.
pub(crate) fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Value that belongs to the process that created it.
pub(crate) struct ProcessLocal<T: Send + 'static> {
    value: Option<T>,
    generation: u64,
}

impl<T: Send + 'static> ProcessLocal<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), generation: GENERATION.load(Ordering::Relaxed) }
    }

    /// Returns whether this process created it.
    pub(crate) fn is_here(&self) -> bool {
        self.generation == GENERATION.load(Ordering::Relaxed)
    }

    /// Returns the value, or `None` in another process.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.is_here())
    }

    /// Returns the value mutably, or `None` in another process.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        if self.is_here() { self.value.as_mut() } else { None }
    }

    /// Takes the value, to close it.
    pub(crate) fn take(mut self) -> Option<T> {
        if self.is_here() { self.value.take() } else { None }
    }
}

impl<T: Send + 'static> Drop for ProcessLocal<T> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else { return };
        if !self.is_here() {
            std::mem::forget(value);
        } else if device::is_serving() {
            lock(&GRAVES).push((self.generation, Box::new(value)));
            HAS_GRAVES.store(true, Ordering::Release);
        } else {
            let mut value = Some(value);
            // If there is no interpreter any more, its lock is not held.
            let _ = Python::try_attach(|py| {
                let value = value.take();
                py.detach(move || drop(value));
            });
        }
    }
}

/// Drops the deferred values. Must be called detached, and not by a device.
pub(crate) fn bury() {
    if HAS_GRAVES.load(Ordering::Acquire) {
        HAS_GRAVES.store(false, Ordering::Release);
        let graves = std::mem::take(&mut *lock(&GRAVES));
        for (generation, value) in graves {
            if generation == GENERATION.load(Ordering::Relaxed) {
                drop(value);
            } else {
                std::mem::forget(value);
            }
        }
    }
}
