//! What belongs to an open image, and when it may be used and dropped.
//!
//! Dropping something of an image can write to it: an image that is dropped is closed. Three times it must not:
//! - In a child after a fork. The parent has the image; the child has a copy of what the parent knew of it, with locks
//!   that threads held which the child does not have. It is neither used nor dropped.
//! - While the interpreter's lock is held: another thread may hold a lock of the engine and wait for the interpreter's,
//!   to call a device that is a Python object.
//! - While such a device is being called, by whichever object the collector has found just then: the engine waits for
//!   the device, and has its locks. What comes then is dropped by the next call.

use std::any::Any;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pyo3::Python;

use crate::device;
use crate::locks::lock;

/// How many forks there were between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// What could not be dropped yet, and the generation that it belongs to.
static GRAVES: Mutex<Vec<(u64, Box<dyn Any + Send>)>> = Mutex::new(Vec::new());
static HAS_GRAVES: AtomicBool = AtomicBool::new(false);

/// Notes that this process is a child.
pub(crate) fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// A value that belongs to the process that made it.
pub(crate) struct Kept<T: Send + 'static> {
    value: Option<T>,
    generation: u64,
}

impl<T: Send + 'static> Kept<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), generation: GENERATION.load(Ordering::Relaxed) }
    }

    /// Whether this is the process that made it.
    pub(crate) fn is_here(&self) -> bool {
        self.generation == GENERATION.load(Ordering::Relaxed)
    }

    /// The value; `None` in another process than the one that made it.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.is_here())
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        if self.is_here() { self.value.as_mut() } else { None }
    }

    /// Takes the value out, to close it.
    pub(crate) fn take(mut self) -> Option<T> {
        if self.is_here() { self.value.take() } else { None }
    }
}

impl<T: Send + 'static> Drop for Kept<T> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else { return };
        if !self.is_here() {
            std::mem::forget(value);
        } else if device::is_serving() {
            lock(&GRAVES).push((self.generation, Box::new(value)));
            HAS_GRAVES.store(true, Ordering::Release);
        } else {
            let mut value = Some(value);
            // Where there is no interpreter any more, nobody has its lock.
            let _ = Python::try_attach(|py| {
                let value = value.take();
                py.detach(move || drop(value));
            });
        }
    }
}

/// Drops what could not be dropped before. To be called detached, and not by a device.
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
