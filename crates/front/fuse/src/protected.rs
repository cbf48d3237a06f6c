//! State of files whose flags forbid writing, as far as the kernel knows them.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use vfs::Ino;

/// State of files whose flags forbid writing.
#[derive(Default)]
pub(crate) struct Protected {
    /// True if the kernel may know any.
    pub(crate) exist: AtomicBool,
    /// Files with rejected data in the kernel's cache.
    refused: Mutex<Vec<Ino>>,
    /// True if there are any.
    has_refused: AtomicBool,
}

impl Protected {
    /// Records that the kernel has rejected data of a file in its cache.
    pub(crate) fn note_refused(&self, ino: Ino) {
        let mut refused = self.refused.lock();
        if !refused.contains(&ino) {
            refused.push(ino);
        }
        self.has_refused.store(true, Ordering::Relaxed);
    }

    /// Returns whether the kernel has rejected data in its cache.
    pub(crate) fn has_refused(&self) -> bool {
        self.has_refused.load(Ordering::Relaxed)
    }

    /// Takes the files with rejected data in the kernel's cache.
    pub(crate) fn take_refused(&self) -> Vec<Ino> {
        let mut refused = self.refused.lock();
        self.has_refused.store(false, Ordering::Relaxed);
        std::mem::take(&mut refused)
    }
}
