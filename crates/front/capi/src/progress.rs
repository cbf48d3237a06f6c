//! Progress callbacks.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use diskwright::build::Progress;
use diskwright::extract::Observer;

use crate::failure::without_nul;

/// Receives progress. Returns 0 to continue; any other value cancels the operation with DW_STOPPED. It must return, and
/// must not use the image.
pub type dw_progress =
    Option<unsafe extern "C" fn(context: *mut c_void, done: u64, bytes: u64) -> c_int>;

/// Receives a warning about omitted or unexpected data. The string is valid until the callback returns.
pub type dw_warning = Option<unsafe extern "C" fn(context: *mut c_void, message: *const c_char)>;

/// Forwards progress and warnings of an operation on one thread.
pub(crate) struct Listener {
    pub(crate) context: *mut c_void,
    pub(crate) progress: dw_progress,
    pub(crate) warning: dw_warning,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

impl Listener {
    pub(crate) fn new(context: *mut c_void, progress: dw_progress, warning: dw_warning) -> Self {
        Self { context, progress, warning, files: 0, bytes: 0 }
    }
}

impl Observer for Listener {
    fn file(&mut self, _: &[u8]) {
        self.files += 1;
    }

    fn copied(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    fn warning(&mut self, message: &str) {
        if let Some(warning) = self.warning {
            let message = without_nul(message);
            // SAFETY: the caller's function follows the rules of the header.
            unsafe { warning(self.context, message.as_ptr()) };
        }
    }

    fn goes_on(&mut self) -> bool {
        let Some(progress) = self.progress else { return true };
        // SAFETY: the caller's function follows the rules of the header.
        unsafe { progress(self.context, self.files, self.bytes) == 0 }
    }
}

/// Forwards the progress of a build.
pub(crate) struct BuildListener {
    context: *mut c_void,
    progress: dw_progress,
    entries: AtomicU64,
    bytes: AtomicU64,
}

// SAFETY: the header states that the callbacks of one call are not called concurrently, but by any thread. A build
// calls them from the thread that fills the image.
unsafe impl Sync for BuildListener {}

impl BuildListener {
    pub(crate) fn new(context: *mut c_void, progress: dw_progress) -> Self {
        Self { context, progress, entries: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }
}

impl Progress for BuildListener {
    fn made(&self, _: u64, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    fn goes_on(&self) -> bool {
        let Some(progress) = self.progress else { return true };
        let entries = self.entries.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's function follows the rules of the header.
        unsafe { progress(self.context, entries, self.bytes.load(Ordering::Relaxed)) == 0 }
    }
}
