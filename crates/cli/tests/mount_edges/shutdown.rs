//! Shutting down by ioctl(2), as tests of crashes do, and what a mount shows of what is left.

use std::fs::{self, File};
use std::io::Write;

use rustix::io::Errno;

use crate::place::probe::{ioctl, ioctl_as};
use crate::place::{Driver, Place, has_compiler, judge, prove_on_both, shell};

/// `XFS_IOC_GOINGDOWN`, `EXT4_IOC_SHUTDOWN`.
const GOINGDOWN: u32 = 0x8004_587d;
const DEFAULT: u32 = 0;
const LOGFLUSH: u32 = 1;
const NOLOGFLUSH: u32 = 2;

/// The status of a server whose mount was shut down.
const SHUT_DOWN: i32 = 4;

fn shut_down(place: &Place, flags: u32) -> Result<(), Errno> {
    ioctl(place.path(), GOINGDOWN, &flags.to_ne_bytes()).map(drop)
}

/// Unmounts what was shut down. The image is recovered when it is next used.
fn unmount(place: &mut Place) {
    let is_own = place.driver() == Driver::Own;
    let (status, said) = place.unmount_unjudged();
    if is_own {
        assert_eq!(status, SHUT_DOWN, "{said}");
        assert!(said.contains("it was shut down"), "{said}");
    }
}

fn drop_entry(entry: std::io::Result<fs::DirEntry>) -> std::io::Result<()> {
    entry.map(drop)
}

fn held(place: &Place) -> (u64, u32) {
    oracle::digest(place.image())
}

/// Only root may, and only what there is.
fn who_may_not_shut_down_does_not(place: &mut Place) {
    if !has_compiler("who_may_not_shut_down_does_not") {
        return;
    }
    let denied = ioctl_as(1000, place.path(), GOINGDOWN, &DEFAULT.to_ne_bytes());
    assert_eq!(denied, Err(Errno::PERM));
    assert_eq!(shut_down(place, 77), Err(Errno::INVAL));
    fs::write(place.join("file"), "it goes on").unwrap();
    place.remount();
    assert_eq!(fs::read(place.join("file")).unwrap(), b"it goes on");
}

/// Everything fails then, and the image stays as it is, whatever the kernel still has.
fn what_is_shut_down_changes_no_more(place: &mut Place) {
    if !has_compiler("what_is_shut_down_changes_no_more") {
        return;
    }
    let synced = place.join("synced");
    fs::write(&synced, "kept").unwrap();
    File::open(&synced).unwrap().sync_all().unwrap();
    fs::create_dir(place.join("lost")).unwrap();
    let mut open = File::create(place.join("open")).unwrap();
    open.write_all(&[7; 1 << 20]).unwrap();
    shut_down(place, NOLOGFLUSH).unwrap();
    let after = (place.driver() == Driver::Own).then(|| held(place));
    let number = |result: std::io::Result<()>| result.unwrap_err().raw_os_error().unwrap();
    let refused = Errno::IO.raw_os_error();
    assert_eq!(number(fs::create_dir(place.join("more"))), refused);
    assert_eq!(number(fs::remove_file(&synced)), refused);
    assert_eq!(number(fs::rename(&synced, place.join("renamed"))), refused);
    assert_eq!(number(open.sync_all()), refused);
    if place.driver() == Driver::Own {
        // ext4 in the kernel goes on to answer from what it has in memory.
        assert_eq!(
            number(fs::read_dir(place.join("lost")).unwrap().try_for_each(drop_entry)),
            refused
        );
        assert_eq!(number(fs::metadata(place.join("never seen")).map(drop)), refused);
    }
    drop(open);
    unmount(place);
    if let Some(after) = after {
        assert!(after == held(place), "nothing was written any more");
    }
    place.mount_with("");
    assert_eq!(fs::read(place.join("synced")).unwrap(), b"kept");
    assert!(!place.join("lost").exists(), "nobody had asked for it to be durable");
}

/// With a flush of the log, what was done is kept.
fn a_flushed_log_keeps_what_was_done(place: &mut Place) {
    if !has_compiler("a_flushed_log_keeps_what_was_done") {
        return;
    }
    fs::create_dir(place.join("kept")).unwrap();
    shut_down(place, LOGFLUSH).unwrap();
    unmount(place);
    place.mount_with("");
    assert!(place.join("kept").is_dir());
}

/// By default all is kept, what the kernel had not yet written back, too.
fn all_is_flushed_by_default(place: &mut Place) {
    if !has_compiler("all_is_flushed_by_default") {
        return;
    }
    let mut open = File::create(place.join("file")).unwrap();
    open.write_all(&[7; 3 << 20]).unwrap();
    fs::create_dir(place.join("dir")).unwrap();
    let outcome = shut_down(place, DEFAULT);
    let options = std::env::var("DISKWRIGHT_PROOFS_OPTIONS").unwrap_or_default();
    if outcome == Err(Errno::OPNOTSUPP) && options.contains("io_uring") {
        // There is nobody then who could wait for the kernel to write back.
        return;
    }
    outcome.unwrap();
    drop(open);
    unmount(place);
    place.mount_with("");
    assert_eq!(fs::read(place.join("file")).unwrap(), vec![7; 3 << 20]);
    assert!(place.join("dir").is_dir());
}

/// A mount for reading shows what a replay would bring, and writes nothing, unless it is asked to recover.
fn mounts_for_reading_show_what_the_log_has(place: &mut Place) {
    shell(
        place.path(),
        "mkdir dir; echo kept > dir/file; echo gone > gone; sync; rm gone; mv dir/file dir/moved",
    );
    shut_down(place, LOGFLUSH).unwrap();
    unmount(place);
    if place.driver() == Driver::Kernel {
        // mount(8) protects the loop device of a mount for reading, and kernels then replay nothing.
        place.mount_with("");
        return;
    }
    let before = held(place);
    let check = |place: &Place| {
        assert_eq!(shell(place.path(), "cat dir/moved; ls dir"), "kept\nmoved\n");
        assert!(!place.join("gone").exists());
        let refused = fs::write(place.join("new"), "").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    };
    place.mount_with("ro");
    check(place);
    assert_eq!(place.unmount_unjudged(), (0, String::new()));
    assert!(before == held(place), "for reading nothing is written");
    place.mount_with("ro,recover");
    check(place);
    place.unmount();
    let recovered = held(place);
    assert!(before != recovered, "it was recovered where it lies");
    place.mount_with("ro,recover");
    check(place);
    place.unmount();
    assert!(recovered == held(place), "what is clean is not written");
    judge(place.image());
}

prove_on_both!(
    a_flushed_log_keeps_what_was_done,
    all_is_flushed_by_default,
    mounts_for_reading_show_what_the_log_has,
    what_is_shut_down_changes_no_more,
    who_may_not_shut_down_does_not,
);
