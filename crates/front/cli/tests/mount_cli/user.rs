//! Users other than root, through `fusermount3`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use tempfile::TempDir;
use testkit::{e2fsck, require, scratch};

use crate::mount::{Point, is_mounted};
use crate::mount_cli::common::{OwnMounts, cat, ext4, own_mounts};

/// User ID of `nobody`. `fusermount3` requires users with a name.
const UID: u32 = 65_534;

/// Runs a program as that user.
fn as_user(words: &[&str]) -> Output {
    let id = UID.to_string();
    let mut command = testkit::command("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).args(words);
    command.env("LC_ALL", "C").output().unwrap()
}

/// Copies the program to a path where that user can execute it.
fn program(dir: &Path) -> String {
    let program = dir.join("diskwright");
    // Copied by another process. If this process had it open for writing, a concurrently started
    // child could inherit the descriptor, and execution would fail.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_diskwright")).arg(&program).status();
    assert!(copied.unwrap().success());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program.to_str().unwrap().into()
}

/// Lets users open `/dev/fuse`, as in the usual configuration. Only this thread and its children
/// see the change and their mounts.
fn let_users_mount() -> Option<OwnMounts> {
    if as_user(&["sh", "-c", "exec 3<>/dev/fuse"]).status.success() {
        return None;
    }
    let mounts = own_mounts();
    let device = fs::metadata("/dev/fuse").unwrap().rdev();
    let place = tempfile::tempdir().unwrap();
    mount("none", place.path(), "tmpfs", MountFlags::empty(), None).unwrap();
    let node = place.path().join("fuse");
    mknodat(CWD, &node, FileType::CharacterDevice, Mode::from_raw_mode(0o666), device).unwrap();
    fs::set_permissions(&node, fs::Permissions::from_mode(0o666)).unwrap();
    mount_bind(&node, "/dev/fuse").unwrap();
    unmount(place.path(), UnmountFlags::DETACH).unwrap();
    Some(mounts)
}

/// An image and a mount point that belong to that user, and a copy of the program.
struct Owned {
    _mounts: Option<OwnMounts>,
    _dir: TempDir,
    image: PathBuf,
    point: Point,
    program: String,
}

impl Owned {
    fn new() -> Self {
        let mounts = let_users_mount();
        let dir = scratch();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (image, point) = (ext4(dir.path()), Point::new());
        for path in [&image, point.path()] {
            chown(path, Some(UID), Some(UID)).unwrap();
        }
        let program = program(dir.path());
        Self { _mounts: mounts, _dir: dir, image, point, program }
    }

    /// Returns the path of the mount point.
    fn point(&self) -> &str {
        self.point.path().to_str().unwrap()
    }

    /// Mounts the image as that user.
    #[track_caller]
    fn mount(&self, options: &[&str]) {
        let words = [&*self.program, "mount", self.image.to_str().unwrap(), self.point()];
        let output = as_user(&[&words[..], options].concat());
        assert!(output.status.success(), "{output:?}");
        assert!(is_mounted(self.point.path()));
    }

    /// Unmounts the image as that user.
    fn unmount(&self) -> Output {
        let output = as_user(&[&self.program, "unmount", self.point()]);
        assert!(!is_mounted(self.point.path()), "{output:?}");
        e2fsck(&self.image);
        output
    }
}

#[test]
fn a_user_mounts_and_unmounts() {
    require!(Fuse, Root, Tool("setpriv"), Tool("fusermount3"), Tool("e2fsck"));
    let owned = Owned::new();
    let point = owned.point();
    owned.mount(&["-o", "owner=0:0"]);
    let file = format!("{point}/etc/hostname");
    assert_eq!(as_user(&["cat", &file]).stdout, b"image\n");
    // The files belong to root, so this user may not change them.
    let refused = as_user(&["sh", "-c", &format!("echo x > {file}")]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Permission denied"));
    let output = owned.unmount();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_users_own_image_is_changed_by_that_user_alone() {
    require!(Fuse, Root, Tool("setpriv"), Tool("fusermount3"), Tool("e2fsck"));
    let owned = Owned::new();
    let point = owned.point();
    let all_mine = format!("uid={UID},gid={UID},owner=0:0");
    owned.mount(&["-o", &all_mine]);
    let output = as_user(&["sh", "-c", &format!("echo mine > {point}/etc/new")]);
    assert!(output.status.success(), "{output:?}");
    // Without allow_other even root has no access.
    let refused = fs::metadata(owned.point.path().join("etc")).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    let output = owned.unmount();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(cat(&owned.image, "/etc/new"), "mine\n");
    let listed = crate::program::diskwright()
        .args(["find", "--json", "--name", "new"])
        .arg(&owned.image)
        .output()
        .unwrap();
    let found = String::from_utf8(listed.stdout).unwrap();
    assert!(found.contains("\"uid\":0"), "{found}");
}

/// A user cannot control the kernel's caching, but writes to a full file system do end.
#[test]
fn endless_writes_fail_without_space() {
    require!(Fuse, Root, Tool("setpriv"), Tool("fusermount3"), Tool("e2fsck"));
    let owned = Owned::new();
    let point = owned.point();
    let all_mine = format!("uid={UID},gid={UID}");
    owned.mount(&["-o", &all_mine]);
    let file = format!("of={point}/file");
    let output = as_user(&["dd", "if=/dev/zero", &file, "bs=64k"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("error writing") && said.contains("No space left"), "{said}");
    // When there is room again, reads and other files work.
    let again = "cat file motd > /dev/null && rm file && echo x > other && cat other motd";
    let output = as_user(&["sh", "-c", &format!("cd {point} && {again}")]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "x\nWelcome.\n", "{output:?}");
    // Unmounting may report the lost data again.
    let output = owned.unmount();
    assert!(matches!(output.status.code(), Some(0 | 4)), "{output:?}");
    assert_eq!(cat(&owned.image, "/other"), "x\n");
}

#[test]
fn an_image_that_may_not_be_written_may_be_read() {
    require!(Fuse, Root, Tool("setpriv"), Tool("fusermount3"));
    let _mounts = let_users_mount();
    let dir = scratch();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (image, point) = (ext4(dir.path()), Point::new());
    fs::set_permissions(&image, fs::Permissions::from_mode(0o644)).unwrap();
    chown(point.path(), Some(UID), Some(UID)).unwrap();
    assert_eq!(fs::metadata(&image).unwrap().uid(), 0);
    let program = program(dir.path());
    let (image_text, point_text) = (image.to_str().unwrap(), point.path().to_str().unwrap());
    let output = as_user(&[&program, "mount", image_text, point_text]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("Permission denied") && said.contains("-o ro"), "{said}");
    let output = as_user(&[&program, "mount", image_text, point_text, "-o", "ro"]);
    assert!(output.status.success(), "{output:?}");
    let output = as_user(&[&program, "unmount", point_text]);
    assert!(output.status.success(), "{output:?}");
}
