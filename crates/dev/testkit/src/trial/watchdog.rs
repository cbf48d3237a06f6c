//! Ends a test that hangs, with a description of its activity.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// Ends the process with a message unless it is dropped in time.
#[derive(Debug)]
pub struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    /// Starts the timer.
    pub fn new(limit: Duration, what: String) -> Self {
        let (alive, gone) = channel();
        thread::spawn(move || {
            if gone.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{what}: not done after {limit:?}; a deadlock or an endless loop");
                std::process::abort();
            }
        });
        Self { _alive: alive }
    }
}
