//! Refusals, full disks and killed copies.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use testkit::LoopDevice;

use super::{FORMATS, MIB, image};
use crate::program::{diskwright, fails, ok};

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn nothing_is_overwritten_unasked() {
    let (fs_type, small) = FORMATS[0];
    let home = image(fs_type, small);
    let dir = home.path();
    fs::write(dir.join("mine"), "mine").unwrap();
    let before = names(dir);
    for (line, status, expected) in [
        ("copy image.img mine", 4, "--force"),
        ("copy image.img new --state mine", 4, "--force"),
        ("copy image.img image.img --force", 2, "same file"),
        ("copy image.img new --state new", 2, "same name"),
        ("copy image.img new --resume", 2, "--state"),
        ("copy image.img new --state s --resume", 2, "no interrupted copy"),
        ("copy image.img new --state s --resume --output zstd", 2, "only a raw copy"),
        ("copy image.img new --since mine", 3, "mine: line 1: expected diskwright copy state 1"),
        ("copy image.img new --since none", 4, "none"),
        ("copy --restore mine image.img", 3, "mine: increment: title"),
        ("copy --restore image.img mine", 3, "image.img: increment: title"),
        ("copy --restore image.img mine --force", 2, "--force"),
        ("copy mine new", 3, "mine"),
        ("copy image.img none/new", 4, "none"),
        ("copy image.img /dev/full", 4, "/dev/full"),
    ] {
        let said = fails(dir, line, status);
        assert!(said.contains(expected), "{line}: {said}");
        assert_eq!(names(dir), before, "{line}");
        assert_eq!(fs::read(dir.join("mine")).unwrap(), b"mine");
    }
    ok(dir, "copy image.img mine --force");
    assert!(ok(dir, "check mine").contains("clean"));
}

#[test]
fn a_small_device_and_a_full_disk_are_errors() {
    testkit::require!(Root, Loop, Tool("losetup"), Tool("mount"), Tool("umount"));
    let (fs_type, small) = FORMATS[0];
    let home = image(fs_type, small);
    let dir = home.path();
    fs::write(dir.join("device"), vec![7; 64 << 20]).unwrap();
    let device = LoopDevice::new(dir.join("device"));
    let said = fails(dir, &format!("copy image.img {} --force", device.name()), 4);
    assert!(said.contains("at least 134217728 bytes, found 67108864"), "{said}");
    drop(device);
    assert!(fs::read(dir.join("device")).unwrap().iter().all(|&byte| byte == 7));
    // A mounted image changes.
    let device = LoopDevice::new(dir.join("image.img"));
    fs::create_dir(dir.join("mounted")).unwrap();
    let mut mount = testkit::command("mount");
    assert!(mount.arg(device.path()).arg(dir.join("mounted")).status().unwrap().success());
    let said = fails(dir, &format!("copy {} new.img", device.name()), 4);
    assert!(fails(dir, "copy image.img new.img", 4).contains("detach the device"));
    testkit::unmount_from(&dir.join("mounted"));
    assert!(said.contains("unmount it first, or copy a snapshot"), "{said}");
    drop(device);
    let full = dir.join("full");
    fs::create_dir(&full).unwrap();
    let mut mount = testkit::command("mount");
    mount.args(["-t", "tmpfs", "-o", "size=2M", "none"]).arg(&full);
    assert!(mount.status().unwrap().success());
    let said: Vec<String> = ["", "--output qcow2", "--state s"]
        .iter()
        .map(|options| fails(dir, &format!("copy image.img full/out {options}"), 4))
        .collect();
    let left = names(&full);
    let mut umount = testkit::command("umount");
    assert!(umount.arg(&full).status().unwrap().success());
    assert!(said.iter().all(|said| said.contains("No space left")), "{said:?}");
    assert_eq!(left, ["out.part"]);
}

#[test]
fn a_killed_copy_is_resumed() {
    for (fs_type, small) in FORMATS {
        let home = image(fs_type, small);
        let dir = home.path();
        let expected = super::json(dir, "copy image.img whole.img");
        for wait_ms in [0, 5, 20, 60] {
            let mut command = diskwright();
            command.current_dir(dir).args(["copy", "image.img", "a.img", "--state", "a.state"]);
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            testkit::wait_until("the copy to begin", || {
                dir.join("a.state.part").exists() || dir.join("a.img").exists()
            });
            std::thread::sleep(Duration::from_millis(wait_ms));
            child.kill().unwrap();
            child.wait().unwrap();
            if !dir.join("a.img").exists() {
                if !dir.join("a.state").exists() {
                    let said = fails(dir, "copy image.img a.img --state a.state", 2);
                    assert!(said.contains("--resume"), "{said}");
                }
                let resumed = super::json(dir, "copy image.img a.img --state a.state --resume");
                assert_eq!(resumed["sha256"], expected["sha256"]);
            }
            let copy = fs::read(dir.join("a.img")).unwrap();
            assert!(copy.len() as u64 == 128 * MIB);
            assert!(copy == fs::read(dir.join("whole.img")).unwrap(), "{wait_ms} ms");
            for name in ["a.img", "a.state", "a.state.part"] {
                let _ = fs::remove_file(dir.join(name));
            }
        }
    }
}

/// A copy is resumed that was killed before it wrote the head of its journal, or before it created its file.
#[test]
fn a_copy_without_a_file_or_a_journal_head_is_resumed() {
    for (fs_type, small) in FORMATS {
        let home = image(fs_type, small);
        let dir = home.path();
        let expected = super::json(dir, "copy image.img whole.img");
        for has_file in [false, true] {
            fs::write(dir.join("a.state.part"), "").unwrap();
            if has_file {
                fs::write(dir.join("a.img.part"), "").unwrap();
            }
            let resumed = super::json(dir, "copy image.img a.img --state a.state --resume");
            assert_eq!(resumed["sha256"], expected["sha256"]);
            assert!(
                fs::read(dir.join("a.img")).unwrap() == fs::read(dir.join("whole.img")).unwrap()
            );
            for name in ["a.img", "a.state"] {
                fs::remove_file(dir.join(name)).unwrap();
            }
        }
    }
}
