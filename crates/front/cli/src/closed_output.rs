//! Replacement of a standard output that was closed when the program started.
//!
//! Rust opens /dev/null for closed standard streams before `main`. So no other file becomes descriptor 1, but all output
//! would be lost without an error. Afterwards a closed stream cannot be distinguished from /dev/null, which callers may
//! choose. So a function looks at the descriptor before Rust does.
//!
//! `unsafe` is needed for the section of functions that run before `main`.

#![allow(unsafe_code)]

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, fcntl_getfd};
use rustix::stdio::{dup2_stdout, stdout};

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the section contains functions of this type, which the C library calls once, after its own start. The function
// makes one system call and needs nothing of Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    IS_CLOSED.store(fcntl_getfd(stdout()) == Err(Errno::BADF), Ordering::Relaxed);
}

/// Makes writes to a closed standard output fail.
pub(crate) fn replace() {
    if !IS_CLOSED.load(Ordering::Relaxed) {
        return;
    }
    // Without this device the output is lost silently, as without this function.
    if let Ok(full) = File::options().write(true).open("/dev/full")
        && dup2_stdout(&full).is_ok()
    {
        diskwright_cli::output_was_closed();
    }
}
