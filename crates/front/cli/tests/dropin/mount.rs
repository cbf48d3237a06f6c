//! mount(8), /etc/fstab and fuse2fs's options, with the program as mount helper.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{command, e2fsck, require, scratch, umount_when_free, wait_until};

use super::run;
use crate::mount::{Point, is_mounted, unmount_when_free};
use crate::mount_cli::common::{OwnMounts, cat, ext4, own_mounts, xfs};
use crate::program::diskwright;

/// Directory in which mount(8) looks for helpers.
const HELPERS: &str = "/usr/sbin";

/// Installs the program as helper where a package would, in a mount namespace of this thread.
fn helpers() -> OwnMounts {
    let mounts = own_mounts();
    let mounted = command("mount").args(["-t", "tmpfs", "none", HELPERS]).status().unwrap();
    assert!(mounted.success());
    for name in ["mount.diskwright", "mount.fuse.diskwright"] {
        symlink(env!("CARGO_BIN_EXE_diskwright"), Path::new(HELPERS).join(name)).unwrap();
    }
    mounts
}

fn ok(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// Returns type and options of a mount from /proc.
fn shown(point: &Path) -> (String, String) {
    let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap();
    let mut lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = lines.find(|words| Path::new(words[1]) == point).expect("it is mounted");
    (found[2].to_owned(), found[3].to_owned())
}

/// Unmounts with umount(8), and waits for the process that serves the mount.
fn unmount(point: &Path, image: &Path) {
    umount_when_free(point);
    assert!(!is_mounted(point));
    wait_until("the image to be free", || {
        let mut command = diskwright();
        command.args(["trim"]).arg(image).output().unwrap().status.success()
    });
}

#[test]
fn mount_finds_its_helper() {
    require!(Root, Fuse, Tool("mount"), Tool("umount"), Tool("e2fsck"));
    let dir = scratch();
    let image = ext4(dir.path());
    // A separate thread, because its view of the helper directory hides the checker.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _mounts = helpers();
            mounts_by_type(&image);
            what_cannot_be_is_told(dir.path(), &image);
        });
    });
    e2fsck(&image);
}

fn mounts_by_type(image: &Path) {
    let point = Point::new();
    let at = [image, point.path()];
    ok(command("mount").args(["-t", "fuse.diskwright", "-o", "noatime"]).args(at));
    let (kind, options) = shown(point.path());
    assert_eq!(kind, "fuse.diskwright");
    assert!(options.starts_with("rw,"), "{options}");
    fs::write(point.path().join("new"), "by mount").unwrap();
    unmount(point.path(), image);
    // A separate type, read-only.
    ok(command("mount").args(["-r", "-n", "-v", "-s", "-t", "diskwright"]).args(at));
    assert!(shown(point.path()).1.starts_with("ro,"));
    assert_eq!(fs::read_to_string(point.path().join("new")).unwrap(), "by mount");
    unmount(point.path(), image);
    // A trial mounts nothing. With `-s`, unknown options are ignored.
    ok(command("mount").args(["-f", "-t", "diskwright"]).args(at));
    assert!(fs::read_dir(point.path()).unwrap().next().is_none());
    ok(command("mount").args(["-s", "-t", "diskwright", "-o", "frob"]).args(at));
    assert!(point.path().join("new").exists());
    unmount(point.path(), image);
}

/// Messages of the helper, and the exit status of mount.
fn what_cannot_be_is_told(dir: &Path, image: &Path) {
    let point = Point::new();
    let nothing = dir.join("nothing");
    fs::write(&nothing, "nothing").unwrap();
    for (options, image, status, expected) in
        [("ro", &*nothing, 32, "neither an ext2/3/4 nor an XFS image"), ("frob", image, 1, "frob")]
    {
        let mut mount = command("mount");
        mount.args(["-t", "fuse.diskwright", "-o", options]).args([image, point.path()]);
        let output = mount.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_line_of_fstab_mounts_an_image() {
    require!(Root, Fuse, Tool("mount"), Tool("umount"));
    let _mounts = helpers();
    let dir = scratch();
    let (image, point) = (xfs(dir.path()), Point::new());
    let table = dir.path().join("fstab");
    let line = format!(
        "{} {} fuse.diskwright noauto,user,nofail,allow_other,log={} 0 0\n",
        image.display(),
        point.path().display(),
        dir.path().join("log").display()
    );
    fs::write(&table, line).unwrap();
    ok(command("mount").arg("--fstab").arg(&table).arg(point.path()));
    assert_eq!(shown(point.path()).0, "fuse.diskwright");
    assert_eq!(fs::read_to_string(point.path().join("motd")).unwrap(), "Welcome.\n");
    assert_eq!(fs::read_to_string(dir.path().join("log")).unwrap(), "");
    unmount(point.path(), &image);
}

#[test]
fn fuse2fs_takes_its_own_words() {
    require!(Fuse, Tool("e2fsck"));
    let dir = scratch();
    let (image, point) = (ext4(dir.path()), Point::new());
    let at = point.path().display();
    let ended = run(dir.path(), &format!("fuse2fs a.img {at} -o rw,bsddf,no_default_opts -s"));
    assert_eq!(ended.status, 0, "{ended:?}");
    fs::write(point.path().join("new"), "by fuse2fs").unwrap();
    assert!(unmount_when_free(point.path()).status.success());
    assert_eq!(cat(&image, "/new"), "by fuse2fs");
    e2fsck(&image);
    // An image in the middle of a file.
    let disk: PathBuf = dir.path().join("disk");
    let bytes = [vec![0; 1 << 20], fs::read(&image).unwrap()].concat();
    fs::write(&disk, bytes).unwrap();
    let ended = run(dir.path(), &format!("fuse2fs -o norecovery,offset=1048576 disk {at}"));
    assert_eq!(ended.status, 0, "{ended:?}");
    assert_eq!(fs::read_to_string(point.path().join("new")).unwrap(), "by fuse2fs");
    assert!(fs::write(point.path().join("other"), "").is_err());
    assert!(unmount_when_free(point.path()).status.success());
    for (options, what) in
        [("-o fakeroot", "fakeroot"), ("-d", "-d"), ("-o lockfile=x", "lockfile")]
    {
        let ended = run(dir.path(), &format!("fuse2fs {options} a.img {at}"));
        assert_eq!(ended.status, 1, "{options}: {ended:?}");
        assert!(ended.messages.contains(what), "{options}: {ended:?}");
        assert!(ended.messages.contains("not supported"), "{options}: {ended:?}");
    }
}
