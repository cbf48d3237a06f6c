//! Standard output that was closed when the program started.
//!
//! The program then writes to a device that is always full, so every lost output is an error. Its reason would be
//! misleading.
//!
//! ```
//! use std::io::{Error, ErrorKind};
//! use diskwright::closed_output::{reason, was_closed};
//!
//! was_closed();
//! assert_eq!(reason(&Error::from(ErrorKind::StorageFull)), "standard output is closed");
//! ```

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Records that standard output was closed when the program started.
pub fn was_closed() {
    IS_CLOSED.store(true, Ordering::Relaxed);
}

/// Returns the reason why writing to standard output failed.
pub fn reason(error: &io::Error) -> String {
    if IS_CLOSED.load(Ordering::Relaxed) && error.kind() == io::ErrorKind::StorageFull {
        return "standard output is closed".into();
    }
    error.to_string()
}
