//! Unmounting on termination signals.

use std::io::{self, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use linux::Unmounter;
use signal_hook::low_level;

use crate::Result;
use crate::signals::{ENDING, STATUS_BASE, watch};

/// Delay before a message explains the wait.
const WAIT_NOTICE_DELAY: Duration = Duration::from_secs(2);

/// Unmounts on SIGINT, SIGTERM or SIGHUP, so that [`Mount::serve`](super::Mount::serve) returns. A second signal ends
/// the process immediately, with a message and the signal's status (130, 143 or 129). The image is then in the state
/// after a crash and is recovered when it is next opened for writing.
///
/// For programs only: it permanently changes the signal handling of the whole process.
///
/// # Errors
/// If the signal handlers cannot be installed.
pub fn unmount_on_signals(unmounter: Unmounter) -> Result<()> {
    let mut unmounter = Some(unmounter);
    watch(ENDING, move |signal| match unmounter.take() {
        // Unmounting takes as long as the kernel's write-back, and must not delay the next signal.
        Some(unmounter) => {
            let unmounter = Arc::new(unmounter);
            let of_thread = Arc::clone(&unmounter);
            let started = thread::Builder::new().spawn(move || unmount(&of_thread));
            if started.is_err() {
                unmount(&unmounter);
            }
        }
        None => end_now(signal),
    })
}

fn unmount(unmounter: &Unmounter) {
    if let Err(error) = unmounter.unmount() {
        say(&error.to_string());
    }
    // The process usually ends before.
    thread::sleep(WAIT_NOTICE_DELAY);
    say("programs still use the mount, or changes are being written; waiting for them, another \
         signal ends it at once");
}

fn end_now(signal: i32) {
    say(
        "ended before all changes were written; the image is recovered at the next change or mount",
    );
    low_level::exit(STATUS_BASE + signal);
}

fn say(text: &str) {
    // Ignore errors of standard error.
    let _ = writeln!(io::stderr(), "diskwright: {text}");
}
