//! Rejected mounts and their reasons.

use std::fs;

use testkit::{e2fsck, require, scratch};

use crate::mount::{Mounted, Mounting, Point};
use crate::mount_cli::common::{ext4, fails, ok};

#[test]
fn invalid_options_are_named_and_give_status_2() {
    let dir = scratch();
    let point = Point::new();
    for (options, named) in [
        ("-o frobnicate", "unknown option frobnicate"),
        ("-o ro,noatime,data=journal", "unknown option data"),
        ("-o uid=root", "uid=root: write a number"),
        ("-o ro -o threads=0", "threads=0: "),
        ("-o commit", "commit needs a value"),
        ("-o errors=panic", "remount-ro or continue"),
        ("-o", "a value is required"),
        ("--foreground --log x", "cannot be used with"),
        ("--partition 1 --offset 5", "cannot be used with"),
        ("--offset 1X", "1X"),
    ] {
        let said = fails(dir.path(), &point, &format!("mount a.img POINT {options}"), 2);
        assert!(said.contains(named), "{options}: {said}");
    }
    fails(dir.path(), &point, "mount a.img", 2);
}

#[test]
fn help_has_every_option() {
    let output = crate::program::diskwright().args(["mount", "--help"]).output().unwrap();
    // Defaults are marked.
    let help = String::from_utf8(output.stdout).unwrap().replace('*', "");
    for option in [
        "ro, rw",
        "allow_other",
        "default_permissions",
        "uid=N, gid=N",
        "owner=U:G",
        "noatime",
        "relatime",
        "strictatime",
        "sync, async",
        "dirsync",
        "defer_creates, no_defer_creates",
        "suid, nosuid",
        "dev, nodev",
        "exec, noexec",
        "commit=SECONDS",
        "errors=remount-ro",
        "errors=continue",
        "threads=N",
        "io_uring, no_io_uring",
        "fsname=NAME",
        "noauto",
        "--foreground",
        "--log",
        "--partition",
    ] {
        assert!(help.contains(option), "{option}");
    }
    assert!(!help.contains("in-background"), "{help}");
}

#[test]
fn a_second_mount_reports_the_first_mount_point() {
    require!(Fuse, Tool("e2fsck"));
    let dir = scratch();
    let image = ext4(dir.path());
    let mounted = Mounted::new(&image);
    let place = format!("mounted at {}: unmount it first", mounted.path().display());
    let point = Point::new();
    for line in ["mount a.img POINT", "mount a.img POINT -o ro", "mkdir a.img /new", "ls a.img"] {
        let said = fails(dir.path(), &point, line, 4);
        assert!(said.contains(&place), "{line}: {said}");
        assert_eq!(said.lines().count(), 1, "{line}: {said}");
    }
    fs::write(mounted.join("still"), "it works").unwrap();
    mounted.unmount();
    e2fsck(&image);
}

#[test]
fn several_readers_can_share_an_image() {
    require!(Fuse);
    let dir = scratch();
    let image = ext4(dir.path());
    let mounted = Mounting::new(&image).options("ro").start();
    let point = Point::new();
    ok(dir.path(), &point, "mount a.img POINT -o ro");
    assert_eq!(fs::read_to_string(point.path().join("motd")).unwrap(), "Welcome.\n");
    assert_eq!(crate::mount_cli::common::cat(&image, "/motd"), "Welcome.\n");
    let said = fails(dir.path(), &Point::new(), "mount a.img POINT", 4);
    assert!(said.contains("mounted at "), "{said}");
    let said = ok(dir.path(), &point, "unmount POINT");
    assert!(said.contains("still mounted at"), "{said}");
    mounted.unmount();
}

#[test]
fn an_image_that_the_kernel_has_mounted_is_refused() {
    require!(Fuse, Mount("ext4"), Tool("e2fsck"));
    let dir = scratch();
    let image = ext4(dir.path());
    let kernel = testkit::KernelMount::new(&image, &testkit::MountOptions::read_write("ext4"));
    let said = fails(dir.path(), &Point::new(), "mount a.img POINT", 4);
    assert!(said.contains("/dev/loop"), "{said}");
    kernel.unmount();
    e2fsck(&image);
}

#[test]
fn an_image_that_cannot_be_changed_may_be_read() {
    require!(Fuse, Tool("debugfs"));
    let dir = scratch();
    let image = ext4(dir.path());
    let point = Point::new();
    testkit::debugfs_write(&image, "set_super_value state 2");
    let said = fails(dir.path(), &point, "mount a.img POINT", 3);
    assert!(said.contains("marked as damaged") && said.contains("-o ro"), "{said}");
    ok(dir.path(), &point, "mount a.img POINT -o ro");
    assert_eq!(fs::read_to_string(point.path().join("motd")).unwrap(), "Welcome.\n");
    ok(dir.path(), &point, "unmount POINT");
}
