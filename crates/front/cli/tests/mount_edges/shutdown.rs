//! Shutdown by ioctl(2), as used by crash tests, and the state afterwards.

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

/// Exit status of a server whose mount was shut down.
const SHUT_DOWN: i32 = 4;

fn shut_down(place: &Place, flags: u32) -> Result<(), Errno> {
    ioctl(place.path(), GOINGDOWN, &flags.to_ne_bytes()).map(drop)
}

/// Unmounts after a shutdown. The image is recovered at its next use.
fn unmount(place: &mut Place) {
    let is_own = place.driver() == Driver::Own;
    let (status, said) = place.unmount_unjudged();
    if is_own {
        assert_eq!(status, SHUT_DOWN, "{said}");
        assert!(said.contains("was shut down"), "{said}");
    }
}

fn drop_entry(entry: std::io::Result<fs::DirEntry>) -> std::io::Result<()> {
    entry.map(drop)
}

fn held(place: &Place) -> (u64, u32) {
    testkit::digest(place.image())
}

/// Only root may shut down, and only with known flags.
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

/// After a shutdown all operations fail, and the image is not changed, even if the kernel still has
/// dirty data.
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
        // The kernel's ext4 continues to answer from its caches.
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

/// With a flush of the log, completed operations are kept.
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

/// By default everything is kept, including data that the kernel had not written back.
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
        // With io_uring there is no late thread, so no thread could wait for the kernel's
        // write-back.
        return;
    }
    outcome.unwrap();
    drop(open);
    unmount(place);
    place.mount_with("");
    assert_eq!(fs::read(place.join("file")).unwrap(), vec![7; 3 << 20]);
    assert!(place.join("dir").is_dir());
}

/// A read-only mount shows the state after a replay, and writes nothing, unless recovery is
/// requested.
fn mounts_for_reading_show_what_the_log_has(place: &mut Place) {
    shell(
        place.path(),
        "mkdir dir; echo kept > dir/file; echo gone > gone; sync; rm gone; mv dir/file dir/moved",
    );
    shut_down(place, LOGFLUSH).unwrap();
    unmount(place);
    if place.driver() == Driver::Kernel {
        // mount(8) makes the loop device of a read-only mount read-only, and the kernel then does
        // not replay the log.
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
