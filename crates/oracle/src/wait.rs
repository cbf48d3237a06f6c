//! Waiting for what a test needs, however busy the machine is.

use std::thread;
use std::time::{Duration, Instant};

/// When something that does not come is held to hang. It is no measure of how long anything may take:
/// machines run other things than a test.
pub const HANG_AFTER: Duration = Duration::from_secs(600);

/// Time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until something is so.
///
/// # Panics
/// Naming what was waited for, if it hangs.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < HANG_AFTER,
            "waited {HANG_AFTER:?} for {what}, which did not come"
        );
        thread::sleep(LOOK_INTERVAL);
    }
}
