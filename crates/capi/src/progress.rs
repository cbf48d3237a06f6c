//! Callers that hear how far something is.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use diskwright::build::Progress;
use diskwright::extract::Observer;

use crate::failure::without_nul;

/// Hears how far something is, and says whether it shall go on: 0 if so, anything else ends it with DW_STOPPED. It must
/// return, and must not use the image.
pub type dw_progress =
    Option<unsafe extern "C" fn(context: *mut c_void, done: u64, bytes: u64) -> c_int>;

/// Hears what was left out, or is not what it should be: a text that lives until it returns.
pub type dw_warning = Option<unsafe extern "C" fn(context: *mut c_void, message: *const c_char)>;

/// Who hears of something that one thread does.
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
            // SAFETY: the caller's function, as the header says.
            unsafe { warning(self.context, message.as_ptr()) };
        }
    }

    fn goes_on(&mut self) -> bool {
        let Some(progress) = self.progress else { return true };
        // SAFETY: the caller's function, as the header says.
        unsafe { progress(self.context, self.files, self.bytes) == 0 }
    }
}

/// Who hears of a build.
pub(crate) struct BuildListener {
    context: *mut c_void,
    progress: dw_progress,
    entries: AtomicU64,
    bytes: AtomicU64,
}

// SAFETY: the header says that the functions of one call are called by one thread at a time, whichever it is. A build asks
// and tells by the thread that fills the image.
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
        // SAFETY: the caller's function, as the header says.
        unsafe { progress(self.context, entries, self.bytes.load(Ordering::Relaxed)) == 0 }
    }
}
