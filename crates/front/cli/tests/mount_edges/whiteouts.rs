//! Whiteouts: entries by which an overlay hides names of its lower layer.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::place::{Place, prove_on_both, shell, tool};

#[track_caller]
fn assert_whiteout(place: &Place, name: &str) {
    let found = fs::symlink_metadata(place.join(name)).unwrap();
    assert!(found.file_type().is_char_device(), "{name}: {found:?}");
    // An overlay links one whiteout to many names.
    assert_eq!((found.rdev(), found.mode() & 0o7777), (0, 0), "{name}");
}

/// After the rename, the old name is a whiteout and the new name is the moved file, whatever it
/// replaced.
fn renames_leave_whiteouts(place: &mut Place) {
    let inode = |name: &str| fs::symlink_metadata(place.join(name)).unwrap().ino();
    let rename = |from: &str, to: &str, flags: RenameFlags| {
        renameat_with(CWD, place.join(from), CWD, place.join(to), flags)
    };
    let whiteout = RenameFlags::WHITEOUT;
    shell(place.path(), "mkdir -p dir other/sub; echo one > file; echo two > taken; mkdir empty");
    let links = fs::metadata(place.path()).unwrap().nlink();
    let numbers = ["file", "other", "dir"].map(inode);
    assert_eq!(rename("file", "taken", whiteout | RenameFlags::EXCHANGE), Err(Errno::INVAL));
    let keep = whiteout | RenameFlags::NOREPLACE;
    assert_eq!(rename("file", "taken", keep), Err(Errno::EXIST));
    assert_eq!(rename("file", "moved", keep), Ok(()));
    assert_eq!(rename("moved", "taken", whiteout), Ok(()), "over another file");
    assert_eq!(rename("taken", "dir/file", whiteout), Ok(()), "to another directory");
    assert_eq!(rename("other", "dir/other", whiteout), Ok(()), "a directory, too");
    assert_eq!(rename("dir", "empty", whiteout), Ok(()), "over an empty one");
    // A whiteout can be renamed and removed like other files.
    assert_eq!(rename("taken", "file", RenameFlags::empty()), Ok(()));
    place.remount();
    let inode = |name: &str| fs::symlink_metadata(place.join(name)).unwrap().ino();
    assert_eq!(["empty/file", "empty/other", "empty"].map(inode), numbers);
    assert_eq!(fs::read(place.join("empty/file")).unwrap(), b"one\n");
    for name in ["file", "moved", "other", "dir"] {
        assert_whiteout(place, name);
        assert_eq!(fs::symlink_metadata(place.join(name)).unwrap().nlink(), 1, "{name}");
    }
    assert!(!place.join("taken").exists() && place.join("empty/other/sub").is_dir());
    // Only `empty` is left of `dir`, `other` and `empty`.
    assert_eq!(fs::metadata(place.path()).unwrap().nlink(), links - 2);
    shell(place.path(), "rm -f file moved other dir; mkdir dir; rmdir dir");
}

/// An overlay with its upper layer on this mount and its lower layer elsewhere.
fn an_overlay_has_its_upper_layer_here(place: &mut Place) {
    if !testkit::satisfied("an overlay's upper layer", &[testkit::Need::Mount("overlay")]) {
        return;
    }
    let (lower, merged) = (place.home().join("lower"), place.home().join("merged"));
    fs::create_dir_all(&merged).unwrap();
    fs::create_dir_all(lower.join("dir")).unwrap();
    for name in ["gone", "moved", "kept", "dir/inner"] {
        fs::write(lower.join(name), name).unwrap();
    }
    shell(place.path(), "mkdir upper work");
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        place.join("upper").display(),
        place.join("work").display()
    );
    let mount = || {
        let mut command = tool("mount");
        let mounted = command.args(["-t", "overlay", "overlay", "-o", &options]).arg(&merged);
        let output = mounted.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    mount();
    shell(&merged, "rm gone; mv moved dir/there; echo more >> kept; rm -r dir/inner; echo n > new");
    rustix::mount::unmount(&merged, UnmountFlags::NOFOLLOW).unwrap();
    for name in ["upper/gone", "upper/moved", "upper/dir/inner"] {
        assert_whiteout(place, name);
    }
    mount();
    let found = shell(&merged, "find . -type f | sort | tr '\\n' ' '; cat dir/there kept");
    assert_eq!(found, "./dir/there ./kept ./new movedkeptmore\n");
    rustix::mount::unmount(&merged, UnmountFlags::NOFOLLOW).unwrap();
}

prove_on_both!(an_overlay_has_its_upper_layer_here, renames_leave_whiteouts);
