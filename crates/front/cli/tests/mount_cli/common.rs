//! Images to mount, and running the program.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use nix::sched::CloneFlags;
use rustix::mount::{MountPropagationFlags, mount_change};

use crate::mount::{Point, unmount_when_free, wait_until};

use crate::program::{diskwright, failed};

/// Runs a command line in a directory. `POINT` stands for the mount point.
pub(crate) fn run(dir: &Path, point: &Point, line: &str) -> Output {
    let point = point.path().to_str().unwrap();
    let words = line.split_whitespace().map(|word| if word == "POINT" { point } else { word });
    diskwright().current_dir(dir).args(words).output().unwrap()
}

/// Runs a command line that must succeed. Returns its messages.
#[track_caller]
pub(crate) fn ok(dir: &Path, point: &Point, line: &str) -> String {
    let is_unmount = line == "unmount POINT";
    let output = if is_unmount { unmount_when_free(point.path()) } else { run(dir, point, line) };
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{line}: {} {said}", output.status);
    assert!(output.stdout.is_empty(), "{line} wrote to standard output");
    said
}

/// Runs a command line that must end with this status. Returns its messages.
#[track_caller]
pub(crate) fn fails(dir: &Path, point: &Point, line: &str, status: i32) -> String {
    failed(run(dir, point, line), line, status)
}

/// Creates the source of images: `motd`, `etc/hostname`, and `etc/link` to that.
pub(crate) fn source(dir: &Path) -> PathBuf {
    let source = dir.join("source");
    fs::create_dir_all(source.join("etc")).unwrap();
    fs::write(source.join("motd"), "Welcome.\n").unwrap();
    fs::write(source.join("etc/hostname"), "image\n").unwrap();
    std::os::unix::fs::symlink("hostname", source.join("etc/link")).unwrap();
    source
}

/// Creates an image of the source, `a.img`.
pub(crate) fn image(dir: &Path, options: &str) -> PathBuf {
    source(dir);
    let line = format!("build source a.img {options}");
    let output = diskwright().current_dir(dir).args(line.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    dir.join("a.img")
}

/// Creates an ext4 image with room for tests.
pub(crate) fn ext4(dir: &Path) -> PathBuf {
    image(dir, "--size 64M")
}

/// Creates an XFS image with room for tests.
pub(crate) fn xfs(dir: &Path) -> PathBuf {
    image(dir, "--fs xfs --small --size 64M")
}

/// Runs a test on an image of each format, in a separate directory.
pub(crate) fn on_each_format(test: impl Fn(&Path, &Path)) {
    for make in [ext4, xfs] {
        let dir = testkit::scratch();
        let image = make(dir.path());
        println!("{}", testkit::Format::of(&image).kernel_name());
        test(dir.path(), &image);
    }
}

/// Returns the contents of a file in an unmounted image.
#[track_caller]
pub(crate) fn cat(image: &Path, path: &str) -> String {
    let output = diskwright().arg("cat").arg(image).arg(path).output().unwrap();
    assert!(output.status.success(), "{path}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Lock for tests that copy the mount table. A file system stays mounted while a private mount namespace has a copy of
/// its mount.
static MOUNT_TABLE: RwLock<()> = RwLock::new(());

/// Waits until no test of this program has a copy of the mount table, and prevents new copies.
pub(crate) fn one_mount_table() -> RwLockWriteGuard<'static, ()> {
    MOUNT_TABLE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Permits this thread to start a program that copies the mount table.
pub(crate) fn may_copy_mounts() -> RwLockReadGuard<'static, ()> {
    MOUNT_TABLE.read().unwrap_or_else(PoisonError::into_inner)
}

/// A private mount namespace of this thread. The thread leaves it on drop.
pub(crate) struct OwnMounts {
    shared: File,
    _copied: RwLockReadGuard<'static, ()>,
}

/// Gives this thread, and those that it starts, a private mount namespace. Needs root.
pub(crate) fn own_mounts() -> OwnMounts {
    let copied = may_copy_mounts();
    let shared = File::open("/proc/thread-self/ns/mnt").unwrap();
    nix::sched::unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).unwrap();
    OwnMounts { shared, _copied: copied }
}

impl Drop for OwnMounts {
    fn drop(&mut self) {
        // The namespace ends with its last thread, and must end before the lock is released. Threads started in it share
        // this thread's root directory, and then EINVAL is returned.
        wait_until("threads of the namespace to end", || {
            nix::sched::setns(&self.shared, CloneFlags::CLONE_NEWNS).is_ok()
        });
    }
}
