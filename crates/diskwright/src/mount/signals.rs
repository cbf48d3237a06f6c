//! Ending a mount when the process is asked to end.

use std::io::{self, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fuse_device::Unmounter;
use signal_hook::low_level;

use crate::Result;
use crate::signals::{ENDING, STATUS_BASE, watch};

/// Time after which it is told what is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Unmounts when this process gets SIGINT, SIGTERM or SIGHUP, so that [`Mount::serve`](super::Mount::serve)
/// returns. The second such signal ends the process at once, with a message and the signal's status
/// (130, 143 or 129), as a crash would: the image is recovered when it is next opened to be changed.
///
/// For programs: it changes what signals do to the whole process, for good.
///
/// # Errors
/// If the signals cannot be handled.
pub fn unmount_on_signals(unmounter: Unmounter) -> Result<()> {
    let mut unmounter = Some(unmounter);
    watch(ENDING, move |signal| match unmounter.take() {
        // It takes as long as writing back what the kernel has: the next signal must not wait.
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
    // The process seldom lives that long.
    thread::sleep(PATIENCE);
    say(
        "programs still use the mount, or changes are still written: it ends with that, or at once with \
         another signal",
    );
}

fn end_now(signal: i32) {
    say("ended before all was written: the image is recovered when it is next changed or mounted");
    low_level::exit(STATUS_BASE + signal);
}

fn say(text: &str) {
    // Without a standard error there is nobody to tell.
    let _ = writeln!(io::stderr(), "diskwright: {text}");
}
