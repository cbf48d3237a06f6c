//! Images that turn out to be damaged or unwritable while mounted.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use testkit::{require, scratch};

use crate::mount::{Mounting, Point, wait_until};
use crate::mount_cli::common::{ext4, fails, ok, on_each_format, own_mounts, xfs};

/// Damages the inode of an image's directory `/etc`.
fn damage(image: &Path) {
    let dump = |what: &[&str]| -> serde_json::Value {
        let mut command = crate::program::diskwright();
        let output = command.args(["dump", "--json"]).arg(image).args(what).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let inode = dump(&["inode", "/etc"]);
    let [block, offset] = ["block", "offset"].map(|name| inode[name].as_u64().unwrap());
    let file = File::options().write(true).open(image).unwrap();
    file.write_all_at(&[0xa5; 16], block * block_size(image) + offset + 24).unwrap();
}

fn block_size(image: &Path) -> u64 {
    let output =
        crate::program::diskwright().arg("info").arg("--json").arg(image).output().unwrap();
    let info: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    info["block_size"].as_u64().unwrap()
}

fn meet_damage(root: &Path) {
    let error = fs::read_dir(root.join("etc"))
        .and_then(|entries| entries.collect::<Result<Vec<_>, _>>())
        .unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::UCLEAN.raw_os_error()), "{error}");
}

#[test]
fn nothing_is_written_after_damage_was_met() {
    require!(Fuse);
    on_each_format(|_, image| nothing_is_written_into(image));
}

fn nothing_is_written_into(image: &Path) {
    damage(image);
    let mut mounted = Mounting::new(image).start();
    fs::write(mounted.join("before"), "it works").unwrap();
    meet_damage(mounted.path());
    wait_until("a message", || mounted.said().contains("inode"));
    let refused = fs::write(mounted.join("after"), "").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::read_to_string(mounted.join("motd")).unwrap(), "Welcome.\n");
    let unmounted =
        crate::program::diskwright().arg("unmount").arg(mounted.path()).output().unwrap();
    assert_eq!(unmounted.status.code(), Some(4));
    // Before the first write to the log, the image has no mark that shows a crash.
    let told = String::from_utf8_lossy(&unmounted.stderr);
    assert!(told.contains("needs recovery") || told.contains("cannot write back"), "{told}");
    let (status, said) = mounted.wait();
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(said.contains("damage was found") && said.contains("diskwright check"), "{said}");
}

#[test]
fn it_goes_on_if_asked_to() {
    require!(Fuse);
    on_each_format(|_, image| it_goes_on_with(image));
}

fn it_goes_on_with(image: &Path) {
    damage(image);
    let mounted = Mounting::new(image).options("errors=continue").start();
    meet_damage(mounted.path());
    fs::write(mounted.join("after"), "it works").unwrap();
    let unmounted =
        crate::program::diskwright().arg("unmount").arg(mounted.path()).status().unwrap();
    assert!(unmounted.success());
    let (status, said) = mounted.wait();
    assert_eq!(status.code(), Some(3), "{said}");
    assert_eq!(crate::mount_cli::common::cat(image, "/after"), "it works");
}

#[test]
fn a_background_mount_writes_its_log() {
    require!(Fuse);
    let dir = scratch();
    damage(&ext4(dir.path()));
    let log = dir.path().join("mount.log");
    fs::write(&log, "earlier\n").unwrap();
    let point = Point::new();
    ok(dir.path(), &point, "mount a.img POINT --log mount.log");
    meet_damage(point.path());
    fails(dir.path(), &point, "unmount POINT", 4);
    let said = || fs::read_to_string(&log).unwrap();
    wait_until("the last message", || said().contains("damage was found"));
    assert!(said().starts_with("earlier\ndiskwright: "), "{}", said());
}

#[test]
fn failed_write_back_is_reported_to_every_fsync() {
    require!(Fuse, Root, Tool("e2fsck"), Tool("xfs_repair"));
    let _mounts = own_mounts();
    [ext4, xfs].into_iter().for_each(what_cannot_be_written_into);
}

fn what_cannot_be_written_into(make: fn(&Path) -> PathBuf) {
    let dir = scratch();
    // The image has holes, and this is less than its full size.
    mount("none", dir.path(), "tmpfs", MountFlags::empty(), Some(c"size=24M")).unwrap();
    let image = make(dir.path());
    let mounted = Mounting::new(&image).start();
    let mut small = File::create(mounted.join("small")).unwrap();
    small.write_all(b"early").unwrap();
    let mut large = File::create(mounted.join("large")).unwrap();
    let written = large.write_all(&vec![1; 40 << 20]).and_then(|()| large.sync_all());
    written.expect_err("there is no room for that");
    // Once the kernel knows of the error, writes that could not be stored are rejected.
    wait_until("a write to be refused", || small.write_all(b"late").is_err());
    for _ in 0..10 {
        small.write_all(b"later").expect_err("no more changes are accepted");
    }
    fs::write(mounted.join("new"), "").expect_err("no more changes are accepted");
    drop((small, large));
    let unmounted =
        crate::program::diskwright().arg("unmount").arg(mounted.path()).output().unwrap();
    assert_eq!(unmounted.status.code(), Some(4), "{unmounted:?}");
    let (status, said) = mounted.wait();
    assert_eq!(status.code(), Some(4), "{said}");
    assert!(said.contains("device error"), "{said}");
    // With room again, the image is recovered.
    let elsewhere = scratch();
    let copy = elsewhere.path().join("a.img");
    let mut cp = std::process::Command::new("cp");
    assert!(cp.arg("--sparse=always").arg(&image).arg(&copy).status().unwrap().success());
    ok(elsewhere.path(), &Point::new(), "recover a.img");
    testkit::judge(&copy);
    assert_eq!(crate::mount_cli::common::cat(&copy, "/motd"), "Welcome.\n");
    rustix::mount::unmount(dir.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
}
