//! Mounts that persist after the command has ended.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use testkit::{e2fsck, require, scratch};

use crate::mount::{Point, is_mounted};

use crate::mount_cli::common::{cat, ext4, fails, ok};
use crate::program::diskwright;

#[test]
fn the_mount_can_be_used_when_the_command_ends() {
    require!(Fuse, Tool("e2fsck"));
    let dir = scratch();
    let (image, point) = (ext4(dir.path()), Point::new());
    assert_eq!(ok(dir.path(), &point, "mount a.img POINT"), "");
    assert_eq!(fs::read_to_string(point.path().join("etc/link")).unwrap(), "image\n");
    fs::write(point.path().join("new"), "by a program").unwrap();
    assert_eq!(ok(dir.path(), &point, "unmount POINT"), "");
    assert!(!is_mounted(point.path()));
    e2fsck(&image);
    assert_eq!(cat(&image, "/new"), "by a program");
}

#[test]
fn paths_may_be_relative_and_the_directory_is_let_go() {
    require!(Fuse, Tool("e2fsck"));
    let dir = scratch();
    let (image, point) = (ext4(dir.path()), Point::new());
    let above = point.path().parent().unwrap();
    let name = point.path().file_name().unwrap();
    let relative = |command: &str| {
        let mut relative = diskwright();
        relative.current_dir(above).arg(command);
        relative
    };
    let status = relative("mount").arg(&image).arg(name).status().unwrap();
    assert!(status.success());
    // The image has a relative path, and the working directory can be removed.
    let status = relative("unmount").arg(name).status().unwrap();
    assert!(status.success());
    let work = dir.path().join("work");
    fs::create_dir(&work).unwrap();
    let log = "mount ../a.img POINT --log ../mount.log";
    ok(&work, &point, log);
    fs::remove_dir(&work).unwrap();
    fs::create_dir(point.path().join("made")).unwrap();
    ok(dir.path(), &point, "unmount POINT");
    assert_eq!(fs::read_to_string(dir.path().join("mount.log")).unwrap(), "");
    e2fsck(&image);
}

#[test]
fn callers_do_not_wait_for_the_output_of_the_server() {
    require!(Fuse);
    let dir = scratch();
    let (image, point) = (ext4(dir.path()), Point::new());
    let mut command = diskwright();
    command.arg("mount").arg(image).arg(point.path());
    let mut command = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    // Both streams end although the mount persists.
    command.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    command.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(command.wait().unwrap().success());
    assert_eq!(said, "");
    assert!(is_mounted(point.path()));
    ok(dir.path(), &point, "unmount POINT");
}

#[test]
fn failures_before_the_mount_have_their_status() {
    require!(Fuse);
    let dir = scratch();
    let point = Point::new();
    fs::write(dir.path().join("text"), "no image").unwrap();
    let said = fails(dir.path(), &point, "mount text POINT", 3);
    assert!(said.contains("neither an ext2/3/4 nor an XFS image"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let said = fails(dir.path(), &point, "mount missing POINT", 4);
    assert!(said.contains("No such file"), "{said}");
    ext4(dir.path());
    let said = fails(dir.path(), &point, "mount a.img missing", 4);
    assert!(said.contains("missing") && said.contains("no such directory"), "{said}");
    let said = fails(dir.path(), &point, "mount a.img text", 4);
    assert!(said.contains("not a directory"), "{said}");
    let said = fails(dir.path(), &point, "mount a.img POINT --log missing/log", 4);
    assert!(said.contains("missing/log"), "{said}");
    // The image is neither locked nor marked as in use.
    e2fsck(dir.path().join("a.img"));
    ok(dir.path(), &point, "mount a.img POINT");
    ok(dir.path(), &point, "unmount POINT");
}

#[test]
fn the_name_of_the_program_may_be_any() {
    require!(Fuse);
    let dir = scratch();
    let (image, point) = (ext4(dir.path()), Point::new());
    let mut command = diskwright();
    command.arg0("dw").args(["mount", "-o", "ro", "--"]).arg(&image).arg(point.path());
    assert!(command.status().unwrap().success());
    assert_eq!(fs::read_to_string(point.path().join("motd")).unwrap(), "Welcome.\n");
    ok(dir.path(), &point, "unmount POINT");
}
