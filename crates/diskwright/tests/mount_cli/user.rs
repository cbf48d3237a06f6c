//! Users who are not root, through `fusermount3`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output};

use oracle::{e2fsck, require, scratch};

use crate::common::{cat, ext4};
use crate::mount::{Point, is_mounted};

/// A user that has nothing.
const UID: u32 = 65_533;

/// Runs a program as that user.
fn as_user(words: &[&str]) -> Output {
    let id = UID.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).args(words);
    command.env("LC_ALL", "C").output().unwrap()
}

/// The program where that user can run it.
fn program(dir: &Path) -> String {
    let program = dir.join("diskwright");
    fs::copy(env!("CARGO_BIN_EXE_diskwright"), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program.to_str().unwrap().into()
}

/// What keeps that user from `/dev/fuse`, which everybody may open where it is set up as usual.
fn no_device() -> Option<String> {
    let opened = as_user(&["sh", "-c", "exec 3<>/dev/fuse"]);
    (!opened.status.success()).then(|| String::from_utf8_lossy(&opened.stderr).into_owned())
}

#[test]
fn a_user_mounts_and_unmounts() {
    require!(Fuse, Root, Tool("setpriv"), Tool("fusermount3"), Tool("e2fsck"));
    let dir = scratch();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (image, point) = (ext4(dir.path()), Point::new());
    for path in [&image, point.path()] {
        chown(path, Some(UID), Some(UID)).unwrap();
    }
    let program = program(dir.path());
    let (image_text, point_text) = (image.to_str().unwrap(), point.path().to_str().unwrap());
    let output = as_user(&[&program, "mount", image_text, point_text, "-o", "owner=0:0"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said} {:?}", no_device());
    assert!(is_mounted(point.path()));
    let file = format!("{point_text}/etc/hostname");
    assert_eq!(as_user(&["cat", &file]).stdout, b"image\n");
    // The files are root's, so that this user may not change them.
    let refused = as_user(&["sh", "-c", &format!("echo x > {file}")]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Permission denied"));
    let output = as_user(&[&program, "unmount", point_text]);
    assert!(output.status.success(), "{output:?}");
    assert!(!is_mounted(point.path()));
    e2fsck(&image);
}

#[test]
fn a_users_own_image_is_changed_by_that_user_alone() {
    require!(Fuse, Root, Tool("setpriv"), Tool("fusermount3"), Tool("e2fsck"));
    let dir = scratch();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (image, point) = (ext4(dir.path()), Point::new());
    for path in [&image, point.path()] {
        chown(path, Some(UID), Some(UID)).unwrap();
    }
    let program = program(dir.path());
    let (image_text, point_text) = (image.to_str().unwrap(), point.path().to_str().unwrap());
    let all_mine = format!("uid={UID},gid={UID},owner=0:0");
    let output = as_user(&[&program, "mount", image_text, point_text, "-o", &all_mine]);
    assert!(output.status.success(), "{output:?}");
    let output = as_user(&["sh", "-c", &format!("echo mine > {point_text}/etc/new")]);
    assert!(output.status.success(), "{output:?}");
    // Without allow_other not even root gets in.
    let refused = fs::metadata(point.path().join("etc")).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    let output = as_user(&[&program, "unmount", point_text]);
    assert!(output.status.success(), "{output:?}");
    e2fsck(&image);
    assert_eq!(cat(&image, "/etc/new"), "mine\n");
    let listed = crate::mount::diskwright()
        .args(["find", "--json", "--name", "new"])
        .arg(&image)
        .output()
        .unwrap();
    let found = String::from_utf8(listed.stdout).unwrap();
    assert!(found.contains("\"uid\":0"), "{found}");
}

#[test]
fn an_image_that_may_not_be_written_may_be_read() {
    require!(Fuse, Root, Tool("setpriv"), Tool("fusermount3"));
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
