//! Commands on XFS images whose log is on another device.

use std::fs::{self, File};
use std::path::Path;

use testkit::{KernelMount, LoopDevice, MountOptions, require, scratch};

use crate::mount::{Point, unmount_when_free};
use crate::program::{fails, ok};

/// Makes `a.img`, whose log is `log`.
fn made(dir: &Path) {
    File::create(dir.join("log")).unwrap().set_len(72 << 20).unwrap();
    fs::write(dir.join("motd"), "Welcome.\n").unwrap();
    ok(dir, "as mkfs.xfs -q -d file,size=300m -l logdev=log,size=64m a.img");
}

fn accepted_by_kernel(dir: &Path) {
    let log = LoopDevice::new(dir.join("log"));
    let extra = format!("logdev={}", log.name());
    let options = MountOptions { extra: &extra, ..MountOptions::read_write("xfs") };
    KernelMount::new(dir.join("a.img"), &options).unmount();
    let mut repair = testkit::command("xfs_repair");
    let output = repair.args(["-n", "-f", "-l", "log", "a.img"]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn images_are_changed_and_checked_with_their_log_device() {
    require!(Tool("xfs_repair"), Tool("xfs_logprint"), Mount("xfs"), Loop);
    let dir = scratch();
    let dir = dir.path();
    made(dir);
    accepted_by_kernel(dir);
    for line in [
        "mkdir a.img /etc --log-device log",
        "cp motd a.img:/etc/motd --log-device log",
        "mv a.img /etc/motd /etc/issue --log-device log",
        "recover a.img --log-device log",
        "check a.img --log-device log",
        "repair --yes a.img --log-device log",
        "trim a.img --log-device log",
        "as xfs_repair -l log a.img",
        "as xfs_admin -L label -U generate a.img log",
    ] {
        ok(dir, line);
    }
    accepted_by_kernel(dir);
    assert_eq!(ok(dir, "cat a.img /etc/issue --log-device log"), "Welcome.\n");
    let info = ok(dir, "info --json a.img --log-device log");
    assert!(info.contains("\"needs_recovery\": false") && info.contains("label"), "{info}");
    ok(dir, "dump --json a.img journal --log-device log");
    File::options().write(true).open(dir.join("a.img")).unwrap().set_len(400 << 20).unwrap();
    ok(dir, "grow a.img --log-device log");
    ok(dir, "convert a.img b.img --size 300M --log-device log");
    assert_eq!(ok(dir, "cat b.img /etc/issue"), "Welcome.\n");
    accepted_by_kernel(dir);
    let mut logprint = testkit::command("xfs_logprint");
    let output = logprint.args(["-t", "-l", "log", "a.img"]).current_dir(dir).output();
    assert!(String::from_utf8_lossy(&output.unwrap().stdout).contains("<CLEAN>"));
}

#[test]
fn a_missing_log_device_is_named_with_the_next_step() {
    let dir = scratch();
    let dir = dir.path();
    made(dir);
    let before = fs::read(dir.join("log")).unwrap();
    for line in ["ls a.img /", "mkdir a.img /etc", "check a.img", "repair --yes a.img"] {
        let said = fails(dir, line, 3);
        assert!(
            said.contains("external log") && said.contains("--log-device FILE"),
            "{line}: {said}"
        );
    }
    ok(dir, "ls --norecovery a.img /");
    ok(dir, "check --norecovery a.img");
    assert!(ok(dir, "info --norecovery a.img").contains("another device"));
    fs::create_dir(dir.join("empty")).unwrap();
    ok(dir, "build empty e.img --fs ext4");
    let said = fails(dir, "ls e.img / --log-device log", 3);
    assert!(said.contains("leave --log-device out"), "{said}");
    let said = fails(dir, "ls e.img / --rt-device log", 2);
    assert!(said.contains("--rt-device is for XFS"), "{said}");
    let said = fails(dir, "mount a.img . --overlay changes --log-device log", 2);
    assert!(said.contains("--log-device: an overlay"), "{said}");
    let said = fails(dir, "ls a.img / --log-device motd", 3);
    assert!(said.contains("a log device of 9 bytes for a log of 67108864 bytes"), "{said}");
    assert!(fails(dir, "ls a.img / --log-device absent", 4).contains("absent"));
    let said = fails(dir, "as mkfs.xfs -f -d file,size=300m -l logdev=log,size=80m b.img", 1);
    assert!(said.contains("too large, maximum is 18432 blocks of log"), "{said}");
    assert!(fs::read(dir.join("log")).unwrap() == before);
}

#[test]
fn builds_place_the_log_on_another_device() {
    require!(Tool("xfs_repair"), Mount("xfs"), Loop);
    let dir = scratch();
    let dir = dir.path();
    File::create(dir.join("log")).unwrap().set_len(16 << 20).unwrap();
    fs::create_dir(dir.join("source")).unwrap();
    fs::write(dir.join("source/motd"), "Welcome.\n").unwrap();
    ok(dir, "build source a.img --fs xfs --log-device log");
    assert_eq!(ok(dir, "cat a.img /motd --log-device log"), "Welcome.\n");
    accepted_by_kernel(dir);
    let said = fails(dir, "build source b.qcow2 --fs xfs --log-device log --output qcow2", 2);
    assert!(said.contains("only be written raw"), "{said}");
}

#[test]
fn mounts_use_and_lock_the_log_device() {
    require!(Fuse, Tool("xfs_repair"), Mount("xfs"), Loop);
    let dir = scratch();
    let dir = dir.path();
    made(dir);
    let point = Point::new();
    let place = point.path().to_str().unwrap();
    ok(dir, &format!("mount a.img {place} -o logdev=log"));
    fs::write(point.path().join("file"), "contents").unwrap();
    fs::copy(dir.join("a.img"), dir.join("b.img")).unwrap();
    let said = fails(dir, "ls b.img / --log-device log", 4);
    assert!(said.contains("log") && said.contains("in use"), "{said}");
    assert!(unmount_when_free(point.path()).status.success());
    assert_eq!(ok(dir, "cat a.img /file --log-device log"), "contents");
    accepted_by_kernel(dir);
}
