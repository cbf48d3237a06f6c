//! Files whose flags forbid writing, as far as the kernel knows them.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use vfs::Ino;

/// What is known of files whose flags forbid writing.
#[derive(Default)]
pub(crate) struct Protected {
    /// Whether the kernel may know any.
    pub(crate) exist: AtomicBool,
    /// Files of which the kernel holds what was refused.
    refused: Mutex<Vec<Ino>>,
    /// Whether there are any.
    has_refused: AtomicBool,
}

impl Protected {
    /// Notes that the kernel holds what was refused of a file.
    pub(crate) fn note_refused(&self, ino: Ino) {
        let mut refused = self.refused.lock();
        if !refused.contains(&ino) {
            refused.push(ino);
        }
        self.has_refused.store(true, Ordering::Relaxed);
    }

    /// Whether the kernel holds what was refused.
    pub(crate) fn has_refused(&self) -> bool {
        self.has_refused.load(Ordering::Relaxed)
    }

    /// The files of which the kernel holds what was refused, which are forgotten here.
    pub(crate) fn take_refused(&self) -> Vec<Ino> {
        let mut refused = self.refused.lock();
        self.has_refused.store(false, Ordering::Relaxed);
        std::mem::take(&mut refused)
    }
}
