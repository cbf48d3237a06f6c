//! A file in use as an image is not replaced.

use std::ffi::CString;
use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use testkit::{KernelMount, MountOptions, judge, require, scratch};

use crate::mount::{Mounted, Mounting, Point};
use crate::mount_cli::common::{ext4, fails, ok, on_each_format};

/// Every command that would replace `a.img`, or the archive `b.tar`, which is the same file. Each
/// runs in a directory with `other.img`, which contains a file `/a.img`.
const REPLACING: [&str; 8] = [
    "build --force source a.img",
    "build --force --fs xfs source a.img",
    "build --force source link.img",
    "build --force source b.tar",
    "extract --force other.img b.tar",
    "extract --force other.img .",
    "cp other.img:/a.img a.img",
    "cp -r other.img:/ .",
];

/// Creates the other files that the commands need.
fn prepare(dir: &Path) {
    fs::create_dir(dir.join("with")).unwrap();
    fs::write(dir.join("with/a.img"), "this is not the image").unwrap();
    ok(dir, &Point::new(), "build with other.img");
    std::os::unix::fs::symlink("a.img", dir.join("link.img")).unwrap();
    fs::hard_link(dir.join("a.img"), dir.join("b.tar")).unwrap();
}

fn refused(dir: &Path, why: &str) {
    for line in REPLACING {
        let said = fails(dir, &Point::new(), line, 4);
        assert!(said.contains(why), "{line}: {said}");
    }
}

#[test]
fn an_image_that_is_mounted_is_not_replaced() {
    require!(Fuse, Tool("e2fsck"), Tool("xfs_repair"));
    on_each_format(|dir, image| {
        prepare(dir);
        let mounted = Mounted::new(image);
        let kept = mounted.join("kept");
        fs::write(&kept, "synced").unwrap();
        File::open(&kept).unwrap().sync_all().unwrap();
        refused(dir, &format!("mounted at {}: unmount it first", mounted.path().display()));
        mounted.unmount();
        judge(image);
        assert_eq!(crate::mount_cli::common::cat(image, "/kept"), "synced");
        let reading = Mounting::new(image).options("ro").start();
        refused(dir, "mounted at ");
        reading.unmount();
        // When the image is free, it is replaced.
        ok(dir, &Point::new(), "cp other.img:/a.img a.img");
        assert_eq!(fs::read_to_string(image).unwrap(), "this is not the image");
    });
}

#[test]
fn an_image_that_the_kernel_has_mounted_is_not_replaced() {
    require!(Loop, Mount("ext4"), Tool("e2fsck"));
    let dir = scratch();
    let image = ext4(dir.path());
    prepare(dir.path());
    let kernel = KernelMount::new(&image, &MountOptions::read_write("ext4"));
    fs::write(kernel.path().join("kept"), "written").unwrap();
    refused(dir.path(), "/dev/loop");
    kernel.unmount();
    judge(&image);
    assert_eq!(crate::mount_cli::common::cat(&image, "/kept"), "written");
}

/// A device is written in place. `--force` does not permit this for a mounted device.
#[test]
fn a_device_that_is_mounted_is_not_written_to() {
    require!(Root, Loop, Mount("ext4"), Tool("losetup"), Tool("e2fsck"));
    let dir = scratch();
    let image = ext4(dir.path());
    prepare(dir.path());
    let kernel = KernelMount::new(&image, &MountOptions::read_write("ext4"));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let point = kernel.path().to_str().unwrap();
    let line = mounts.lines().find(|line| line.split(' ').nth(1) == Some(point)).unwrap();
    let device = line.split(' ').next().unwrap();
    for line in ["build --force source", "extract --force other.img", "cp other.img:/a.img"] {
        if line.starts_with("extract") {
            std::os::unix::fs::symlink(device, dir.path().join("device.tar")).unwrap();
            fails(dir.path(), &Point::new(), &format!("{line} device.tar"), 4);
        } else {
            let said = fails(dir.path(), &Point::new(), &format!("{line} {device}"), 4);
            assert!(said.contains("in use by"), "{line}: {said}");
        }
    }
    kernel.unmount();
    judge(&image);
}

#[test]
fn pipes_and_other_special_files_are_refused_at_once() {
    let dir = scratch();
    let pipe = CString::new(dir.path().join("pipe").to_str().unwrap()).unwrap();
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    fs::create_dir(dir.path().join("directory")).unwrap();
    fs::create_dir(dir.path().join("source")).unwrap();
    let kinds = [
        ("pipe", "it is a pipe"),
        ("socket", "it is a socket"),
        ("/dev/tty", "it is a character device"),
        ("directory", "it is a directory"),
    ];
    for (name, why) in kinds {
        for line in [
            "info IMAGE",
            "ls IMAGE",
            "ls --stale IMAGE",
            "cat IMAGE /x",
            "find IMAGE",
            "extract IMAGE out.tar",
            "paths IMAGE 2",
            "dump IMAGE superblock",
            "recover IMAGE",
            "mkdir IMAGE /x",
            "rm IMAGE /x",
            "rmdir IMAGE /x",
            "mv IMAGE /x /y",
            "ln IMAGE /x /y",
            "chmod IMAGE 600 /x",
            "chown IMAGE 0:0 /x",
            "setfattr IMAGE -n user.x -v 1 /x",
            "truncate -s 0 IMAGE /x",
            "cp IMAGE:/x out",
            "cp source IMAGE:/x",
            "mount IMAGE POINT",
            "mount -o ro IMAGE POINT",
        ] {
            if line.contains("IMAGE:") && name == "directory" {
                // This is a path on the host.
                continue;
            }
            let line = line.replace("IMAGE", name);
            let said = fails(dir.path(), &Point::new(), &line, 4);
            assert!(said.contains(name) && said.contains(why), "{line}: {said}");
        }
        let said = fails(dir.path(), &Point::new(), &format!("build source {name}"), 4);
        assert!(said.contains(name) && said.contains("neither a regular file"), "{said}");
    }
}
