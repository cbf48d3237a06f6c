//! Waiting for conditions, independent of the load of the machine.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Time after which a condition is considered to hang. Not a measure of any duration: machines run other work besides a
/// test.
pub const HANG_AFTER: Duration = Duration::from_secs(600);

/// Polling interval.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until a condition is true.
///
/// # Panics
/// If it hangs, with the name of the condition.
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

/// Unmounts `place` with umount(8) as soon as it is not busy: a process that another test is starting has copies of all
/// open files until its program is executed.
///
/// # Panics
/// If it cannot be unmounted for another reason, or stays busy.
#[track_caller]
pub fn umount_when_free(place: &Path) {
    wait_until("nobody to use the mount", || {
        let output = crate::command("umount").arg(place).output().expect("umount runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || said.contains("busy"), "{said}");
        output.status.success()
    });
}
