//! Detects leftovers of a run.

use std::fs;
use std::path::Path;

use testkit::wait_until;

/// Returns the loop devices on files of a directory, including unlinked files, as `losetup -a`
/// shows them. Only the directory's own name, which is unique, is compared, because its parents may
/// not be shown.
pub(crate) fn loop_devices(scratch: &Path) -> Vec<String> {
    let part = format!("/{}/", scratch.file_name().unwrap().display());
    let devices = fs::read_dir("/sys/block").unwrap().map(Result::unwrap);
    let backing = devices.map(|device| fs::read_to_string(device.path().join("loop/backing_file")));
    backing.flatten().filter(|file| file.contains(&part)).collect()
}

/// Returns descriptions of all leftovers of runs with this scratch directory.
fn traces(scratch: &Path) -> Vec<String> {
    let mut found = loop_devices(scratch);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let scratch_text = scratch.display().to_string();
    found.extend(mounts.lines().filter(|line| line.contains(&scratch_text)).map(str::to_owned));
    let files = fs::read_dir(scratch).unwrap().map(|entry| entry.unwrap().path());
    found.extend(files.map(|path| path.display().to_string()));
    found
}

/// Asserts that nothing is left.
#[track_caller]
pub(crate) fn assert_no_trace(scratch: &Path) {
    assert_eq!(traces(scratch), [""; 0]);
}

/// Asserts that nothing is left after the kernel has cleaned up a dead process.
#[track_caller]
pub(crate) fn assert_no_trace_at_last(scratch: &Path) {
    wait_until("everything of a killed process to go", || traces(scratch).is_empty());
}
