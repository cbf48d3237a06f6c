//! Ctrl-C during a run: nothing is left behind, and the measurements so far are reported.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::{require, scratch, wait_until};

use crate::command::common::{list, only, text, workload};

fn start(dir: &Path, line: &str) -> Child {
    workload(dir, line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Interrupts a run and waits for its end. Returns its messages.
#[track_caller]
fn interrupt(mut child: Child, signal: Signal) -> String {
    kill_process(Pid::from_child(&child), signal).unwrap();
    wait_until("the end of the interrupted run", || child.try_wait().unwrap().is_some());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    assert!(said.contains("interrupted: "), "{said}");
    said
}

/// Asserts that the report is marked as incomplete.
fn check_report(dir: &Path) -> Value {
    let json = fs::read_to_string(dir.join("report/report.json")).unwrap();
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["cut_short"], true);
    let page = fs::read_to_string(dir.join("report/report.html")).unwrap();
    assert!(page.contains("Interrupted"), "the page does not say so");
    report
}

/// Returns the loop devices whose image is in this directory.
fn loop_devices(dir: &Path) -> Vec<String> {
    let dir = dir.canonicalize().unwrap();
    let devices = fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap());
    let is_one_of_them = |device: &fs::DirEntry| {
        let file = fs::read_to_string(device.path().join("loop/backing_file"));
        file.is_ok_and(|file| file.starts_with(dir.to_str().unwrap()))
    };
    let own = devices.filter(is_one_of_them);
    own.map(|device| device.file_name().into_string().unwrap()).collect()
}

/// Returns whether one of these devices has a mounted ext4, in any mount namespace.
fn is_mounted(devices: &[String]) -> bool {
    devices.iter().any(|name| Path::new("/sys/fs/ext4").join(name).exists())
}

#[test]
fn a_kernel_target_goes_with_its_image_mount_and_loop_device() {
    require!(Root, Loop, Mount("ext4"));
    let dir = scratch();
    let images = dir.path().join("images");
    fs::create_dir(&images).unwrap();
    let line =
        "create --files 1k,5M --rounds 3 --target kernel:ext4 --scratch images --report report";
    let child = start(dir.path(), line);
    let mut devices = Vec::new();
    wait_until("a kernel's mount", || {
        devices = loop_devices(&images);
        is_mounted(&devices)
    });
    interrupt(child, Signal::INT);
    assert!(loop_devices(&images).is_empty(), "a loop device is left");
    assert_eq!(fs::read_dir(&images).unwrap().count(), 0, "a file is left");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(images.to_str().unwrap()), "{mounts}");
    check_report(dir.path());
}

#[test]
fn what_was_measured_before_is_reported() {
    interrupted_by(Signal::TERM);
}

#[test]
fn a_terminal_that_goes_away_interrupts_too() {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    if u64::from_str_radix(mask.trim(), 16).unwrap() & 1 != 0 {
        eprintln!("SKIPPED: this test was started to ignore SIGHUP (nohup?)");
        return;
    }
    interrupted_by(Signal::HUP);
}

fn interrupted_by(signal: Signal) {
    let dir = scratch();
    let place = dir.path().join("place");
    fs::create_dir(&place).unwrap();
    // The directory follows the file system in memory.
    let line = "create --files 500,2M --target memory:ext4 --target place --report report";
    let child = start(dir.path(), line);
    let has_begun = || fs::read_dir(&place).unwrap().count() > 0;
    wait_until("a run in the directory", has_begun);
    interrupt(child, signal);
    assert!(!has_begun(), "a directory is left");
    let report = check_report(dir.path());
    let rows = list(only(&report), "rows");
    assert!(rows.iter().all(|row| row["x"] == 500), "{rows:?}");
    assert!(rows.iter().any(|row| text(row, "contestant") == "memory:ext4"), "{rows:?}");
}
