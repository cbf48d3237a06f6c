//! Waiting for what a test needs, however busy the machine is.

use std::path::Path;
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

/// Has umount(8) take away what is mounted at `place`, as soon as nobody uses it: a process that another test is
/// just starting has copies of what was open here, for as long as the machine takes to start it.
///
/// # Panics
/// If it cannot be unmounted for another reason, or stays in use.
#[track_caller]
pub fn umount_when_free(place: &Path) {
    wait_until("nobody to use the mount", || {
        let output = crate::command("umount").arg(place).output().expect("umount runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || said.contains("busy"), "{said}");
        output.status.success()
    });
}
