//! Mounts through the library.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use diskwright::mount::{Mount, MountOptions, Released, UnmountOptions, Unmounter, unmount};
use diskwright::{Error, Image, ImageOptions};
use testkit::{e2fsck, judge, require, scratch};

use super::images::{FORMATS, options};

/// A new directory for a mount.
struct Point(PathBuf);

impl Point {
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("diskwright-fuse-").tempdir().unwrap();
        Self(dir.keep())
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        // After a failure it may still be mounted.
        if fs::remove_dir(&self.0).is_err() {
            let helper = testkit::program("fusermount3");
            let _ = helper.map(|path| Command::new(path).arg("-uz").arg(&self.0).status());
            let _ = fs::remove_dir(&self.0);
        }
    }
}

/// Creates an image with a file.
fn image(dir: &Path, format: &str) -> PathBuf {
    let path = dir.join("a.img");
    let image = Image::create(&path, 400 << 20, options(format)).unwrap();
    image.write("motd", "Welcome.\n").unwrap();
    image.close().unwrap();
    path
}

fn ext4(dir: &Path) -> PathBuf {
    image(dir, "ext4")
}

/// Runs a test on an image of each format, in a separate directory.
fn on_each_format(test: impl Fn(&Path)) {
    for format in FORMATS {
        println!("{format}");
        let dir = scratch();
        test(&image(dir.path(), format));
    }
}

/// Serves a mount on a thread while `work` runs. Returns the result of serving.
fn serve_while(mount: Mount, work: impl FnOnce(&Unmounter)) -> diskwright::Result<()> {
    let unmounter = mount.unmounter();
    let (ready, is_ready) = mpsc::channel();
    let server = thread::spawn(move || mount.serve(|| ready.send(()).unwrap()));
    is_ready.recv_timeout(testkit::HANG_AFTER).expect("the mount is served");
    work(&unmounter);
    server.join().unwrap()
}

fn open(image: &Path, read_only: bool) -> Image {
    ImageOptions::new().write(!read_only).open_to_mount(image).unwrap()
}

#[test]
fn a_program_mounts_what_it_has_opened() {
    require!(Fuse, Tool("e2fsck"), Tool("xfs_repair"));
    on_each_format(|image| {
        let point = Point::new();
        let opened = open(image, false);
        assert!(opened.is_writable() && opened.remarks().is_empty());
        let mount = opened.mount(point.path(), MountOptions::default()).unwrap();
        let served = serve_while(mount, |unmounter| {
            fs::write(point.path().join("new"), "by itself").unwrap();
            unmounter.unmount().unwrap();
            unmounter.unmount().expect("it may be gone already");
        });
        served.unwrap();
        judge(image);
        assert_eq!(Image::open(image).unwrap().read_to_string("new").unwrap(), "by itself");
    });
}

#[test]
fn an_image_that_is_open_for_reading_is_mounted_so() {
    require!(Fuse);
    let dir = scratch();
    let (image, point) = (ext4(dir.path()), Point::new());
    let opened = Image::open(&image).unwrap();
    let mount = opened.mount(point.path(), MountOptions::default()).unwrap();
    let served = serve_while(mount, |unmounter| {
        assert_eq!(fs::read_to_string(point.path().join("motd")).unwrap(), "Welcome.\n");
        let refused = fs::write(point.path().join("new"), "").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
        unmounter.unmount().unwrap();
    });
    served.unwrap();
}

#[test]
fn a_writable_image_may_be_mounted_read_only() {
    require!(Fuse, Tool("e2fsck"), Tool("xfs_repair"));
    on_each_format(|image| {
        let point = Point::new();
        let opened = Image::open_writable(image).unwrap();
        let options = MountOptions::default().read_only(true);
        let mount = opened.mount(point.path(), options).unwrap();
        let served = serve_while(mount, |unmounter| {
            let refused = fs::create_dir(point.path().join("new")).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
            unmounter.unmount().unwrap();
        });
        served.unwrap();
        judge(image);
    });
}

#[test]
fn a_failed_mount_closes_the_image() {
    require!(Fuse, Tool("e2fsck"));
    let dir = scratch();
    let image = ext4(dir.path());
    let nowhere = dir.path().join("nowhere");
    let refused = open(&image, false).mount(&nowhere, MountOptions::default());
    let error = refused.err().expect("no such directory");
    assert!(matches!(error, Error::Mount(_)), "{error}");
    e2fsck(&image);
}

#[test]
fn a_program_waits_for_the_image_of_another() {
    require!(Fuse);
    let dir = scratch();
    let (image, point) = (ext4(dir.path()), Point::new());
    let mount = open(&image, false).mount(point.path(), MountOptions::default()).unwrap();
    let patience = testkit::HANG_AFTER;
    let served = serve_while(mount, |_| {
        let released = unmount(point.path(), &UnmountOptions::default().patience(patience));
        assert_eq!(released.unwrap(), Released::Free);
    });
    served.unwrap();
}
