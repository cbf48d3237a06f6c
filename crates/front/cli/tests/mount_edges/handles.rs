//! File handles, which NFS servers use to identify files: valid as long as the file, and no longer.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use crate::place::probe::{handle, open_handle};
use crate::place::{Place, has_compiler, prove_on_both, wait_until};

/// `ESTALE`.
const STALE: &str = "error 116\n";

/// Waits for a file to be freed: the kernel sends FORGET some time after the last use.
fn goes_stale(place: &Place, handle: &str) {
    wait_until("the file to go", || open_handle(place.path(), handle) == STALE);
}

fn handles_name_one_file(place: &mut Place) {
    if !has_compiler("handles_name_one_file") {
        return;
    }
    fs::create_dir(place.join("directory")).unwrap();
    let path = place.join("directory/file");
    fs::write(&path, "first").unwrap();
    let (number, first) = (fs::metadata(&path).unwrap().ino(), handle(&path));
    assert_eq!(open_handle(place.path(), &first), "first");
    // A rename does not affect the handle.
    fs::rename(&path, place.join("elsewhere")).unwrap();
    assert_eq!(open_handle(place.path(), &first), "first");
    assert_eq!(handle(&place.join("elsewhere")), first);
    fs::remove_file(place.join("elsewhere")).unwrap();
    goes_stale(place, &first);
    // The inode number is eventually reused, for another file.
    let mut made = 0;
    let reused = loop {
        let path = place.join(format!("directory/new {made}"));
        fs::write(&path, "second").unwrap();
        if fs::metadata(&path).unwrap().ino() == number {
            break path;
        }
        made += 1;
        assert!(made < 2000, "inode {number} is never used again");
    };
    assert_eq!(open_handle(place.path(), &first), STALE);
    let second = handle(&reused);
    assert_ne!(first, second);
    assert_eq!(open_handle(place.path(), &second), "second");
}

/// Handles remain valid across a remount, when no cache contains the file.
fn handles_outlast_the_mount(place: &mut Place) {
    if !has_compiler("handles_outlast_the_mount") {
        return;
    }
    fs::create_dir_all(place.join("a/b")).unwrap();
    fs::write(place.join("a/b/kept"), "kept").unwrap();
    fs::write(place.join("a/b/gone"), "gone").unwrap();
    let [kept, gone] = ["a/b/kept", "a/b/gone"].map(|path| handle(&place.join(path)));
    place.remount();
    fs::remove_file(place.join("a/b/gone")).unwrap();
    assert_eq!(open_handle(place.path(), &kept), "kept");
    goes_stale(place, &gone);
    let open = File::open(place.join("a/b/kept")).unwrap();
    fs::remove_file(place.join("a/b/kept")).unwrap();
    // An unlinked file exists as long as it is open.
    assert_eq!(open_handle(place.path(), &kept), "kept");
    drop(open);
    goes_stale(place, &kept);
}

prove_on_both!(handles_name_one_file, handles_outlast_the_mount);
