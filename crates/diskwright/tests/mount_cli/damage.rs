//! Images that are found to be damaged while they are mounted.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use oracle::{require, scratch};
use rustix::io::Errno;

use crate::common::{image, ok};
use crate::mount::{Mounting, Point, wait_until};

/// An image whose directory `/etc` is damaged.
fn damaged(dir: &Path) -> PathBuf {
    let image = image(dir, "--size 64M");
    let blocks = oracle::debugfs(&image, "blocks /etc");
    let block = blocks.lines().find_map(|line| line.trim().parse::<u64>().ok()).unwrap();
    let file = File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0xa5; 16], block * block_size(&image)).unwrap();
    image
}

fn block_size(image: &Path) -> u64 {
    let output = crate::mount::diskwright().arg("info").arg("--json").arg(image).output().unwrap();
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
    require!(Fuse, Tool("debugfs"));
    let dir = scratch();
    let image = damaged(dir.path());
    let mut mounted = Mounting::new(&image).start();
    fs::write(mounted.join("before"), "it works").unwrap();
    meet_damage(mounted.path());
    wait_until("a message", || mounted.said().contains("directory"));
    let refused = fs::write(mounted.join("after"), "").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::read_to_string(mounted.join("motd")).unwrap(), "Welcome.\n");
    let unmounted = crate::mount::diskwright().arg("unmount").arg(mounted.path()).status().unwrap();
    assert!(unmounted.success());
    let (status, said) = mounted.wait();
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(said.contains("found to be damaged") && said.contains("e2fsck -fn"), "{said}");
}

#[test]
fn it_goes_on_if_asked_to() {
    require!(Fuse, Tool("debugfs"));
    let dir = scratch();
    let image = damaged(dir.path());
    let mounted = Mounting::new(&image).options("errors=continue").start();
    meet_damage(mounted.path());
    fs::write(mounted.join("after"), "it works").unwrap();
    let unmounted = crate::mount::diskwright().arg("unmount").arg(mounted.path()).status().unwrap();
    assert!(unmounted.success());
    let (status, said) = mounted.wait();
    assert_eq!(status.code(), Some(3), "{said}");
    assert_eq!(crate::common::cat(&image, "/after"), "it works");
}

#[test]
fn a_mount_in_the_background_tells_its_log() {
    require!(Fuse, Tool("debugfs"));
    let dir = scratch();
    damaged(dir.path());
    let log = dir.path().join("mount.log");
    fs::write(&log, "earlier\n").unwrap();
    let point = Point::new();
    ok(dir.path(), &point, "mount a.img POINT --log mount.log");
    meet_damage(point.path());
    ok(dir.path(), &point, "unmount POINT");
    let said = || fs::read_to_string(&log).unwrap();
    wait_until("the last message", || said().contains("found to be damaged"));
    assert!(said().starts_with("earlier\ndiskwright: "), "{}", said());
}
