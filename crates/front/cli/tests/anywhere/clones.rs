//! Clones of an image, their snapshots, and what becomes of them.

use std::fs;
use std::path::Path;

use testkit::{require, scratch};

use super::{fails, image, ok, run, source};

/// Makes an image of each format. Returns their names.
pub(super) fn bases(dir: &Path) -> [String; 2] {
    source(dir);
    ["ext4", "xfs"].map(|format| {
        let line = format!("build source {format}.img --fs {format} --size 320M");
        assert!(run(dir, &line).status.success(), "{line}");
        format!("{format}.img")
    })
}

pub(super) fn hostname(dir: &Path, image: &str) -> String {
    String::from_utf8(ok(dir, &format!("cat {image} /etc/hostname"))).unwrap()
}

pub(super) fn set_hostname(dir: &Path, image: &str, name: &str) {
    fs::write(dir.join("name"), name).unwrap();
    ok(dir, &format!("cp name {image}:/etc/hostname"));
}

/// Commits an image and lets programs of others judge the result.
pub(super) fn judge(dir: &Path, clone: &str) {
    ok(dir, &format!("commit --force {clone} judged.img"));
    testkit::judge(dir.join("judged.img"));
    assert!(run(dir, &format!("check {clone}")).status.success());
}

#[test]
fn clones_change_apart_and_leave_the_base() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    let dir = scratch();
    let dir = dir.path();
    for base in bases(dir) {
        let before = fs::read(dir.join(&base)).unwrap();
        let (one, other) = (format!("{base}.1"), format!("{base}.2"));
        ok(dir, &format!("clone {base} {one} {other}"));
        set_hostname(dir, &one, "one\n");
        ok(dir, &format!("mkdir {other} /etc/made"));
        assert_eq!(hostname(dir, &one), "one\n");
        assert_eq!(hostname(dir, &other), "image\n");
        let differ = run(dir, &format!("diff {base} {one}"));
        assert_eq!(differ.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&differ.stdout).contains("/etc/hostname"));
        let differ = run(dir, &format!("diff {one} {other}"));
        assert!(String::from_utf8_lossy(&differ.stdout).contains("/etc/made"));
        judge(dir, &one);
        judge(dir, &other);
        assert!(fs::read(dir.join(&base)).unwrap() == before, "the base is changed");
        let told = fails(dir, &format!("clone {base} new {one}"), 4);
        assert!(told.contains("exists"), "{told}");
        assert!(!dir.join("new").exists(), "a failed command leaves a clone");
    }
}

#[test]
fn a_clone_returns_to_its_snapshots_and_to_its_base() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    let dir = scratch();
    let dir = dir.path();
    for base in bases(dir) {
        let clone = format!("{base}.clone");
        ok(dir, &format!("clone {base} {clone}"));
        for number in 1..=3 {
            set_hostname(dir, &clone, &format!("state {number}\n"));
            ok(dir, &format!("snapshot {clone} {base}.{number}"));
        }
        set_hostname(dir, &clone, "lost\n");
        judge(dir, &clone);
        ok(dir, &format!("reset {clone}"));
        assert_eq!(hostname(dir, &clone), "state 3\n");
        for number in 1..=3 {
            assert_eq!(hostname(dir, &format!("{base}.{number}")), format!("state {number}\n"));
        }
        // A snapshot is the base of another clone, and does not change.
        ok(dir, &format!("clone {base}.2 {base}.fork"));
        set_hostname(dir, &format!("{base}.fork"), "fork\n");
        assert_eq!(hostname(dir, &format!("{base}.2")), "state 2\n");
        judge(dir, &format!("{base}.fork"));
        ok(dir, &format!("reset {clone} --to {base}.1"));
        assert_eq!(hostname(dir, &clone), "state 1\n");
        let told = fails(dir, &format!("reset {clone} --to {base}.3"), 2);
        assert!(told.contains("is not a snapshot"), "{told}");
        ok(dir, &format!("reset {clone} --to-base"));
        assert_eq!(hostname(dir, &clone), "image\n");
        let told = fails(dir, &format!("snapshot {clone} {base}.1"), 4);
        assert!(told.contains("exists"), "{told}");
        assert_eq!(hostname(dir, &clone), "image\n");
        judge(dir, &clone);
    }
}

#[test]
fn a_commit_into_the_base_is_possible_and_detected_by_others() {
    let dir = scratch();
    let dir = dir.path();
    for base in bases(dir) {
        ok(dir, &format!("clone {base} one.{base} other.{base}"));
        set_hostname(dir, &format!("one.{base}"), "committed\n");
        // The base lies below a snapshot.
        ok(dir, &format!("snapshot one.{base} snapshot.{base}"));
        assert!(fails(dir, &format!("commit one.{base} {base}"), 4).contains("exists"));
        ok(dir, &format!("commit --force one.{base} {base}"));
        assert_eq!(hostname(dir, &base), "committed\n");
        testkit::judge(dir.join(&base));
        let told = fails(dir, &format!("ls other.{base}"), 3);
        assert!(told.contains("belongs to"), "{told}");
        ok(dir, &format!("reset --to-base one.{base}"));
        assert_eq!(hostname(dir, &format!("one.{base}")), "committed\n");
    }
}

#[test]
fn a_longer_clone_grows_and_is_repaired() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    let dir = scratch();
    let dir = dir.path();
    for base in bases(dir) {
        let clone = format!("{base}.long");
        ok(dir, &format!("clone {base} {clone} --size 512M"));
        assert!(run(dir, &format!("grow {clone}")).status.success());
        ok(dir, &format!("snapshot {clone} {base}.grown"));
        let info = ok(dir, &format!("info --json {clone}"));
        let info = String::from_utf8(info).unwrap();
        assert!(info.contains("\"blocks\": 131072"), "{info}");
        assert!(run(dir, &format!("repair --yes {clone}")).status.success());
        judge(dir, &clone);
        ok(dir, &format!("reset --to-base {clone}"));
        judge(dir, &clone);
        assert!(fails(dir, &format!("grow {clone} --size 600M"), 2).contains("are needed"));
        assert!(fails(dir, &format!("clone {base} short --size 100M"), 3).contains("too few"));
        assert!(!dir.join("short").exists());
    }
}

#[test]
fn unusable_clones_are_refused_with_the_reason() {
    let dir = scratch();
    let dir = dir.path();
    let [base, _] = bases(dir);
    ok(dir, &format!("clone {base} clone"));
    for line in [format!("snapshot {base} new"), format!("reset {base}")] {
        assert!(fails(dir, &line, 3).contains("not an overlay"), "{line}");
    }
    assert!(!dir.join("new").exists());
    // The state after a crash between the two steps of a snapshot.
    fs::hard_link(dir.join("clone"), dir.join("snapshot")).unwrap();
    assert_eq!(hostname(dir, "clone"), "image\n");
    for line in ["mkdir clone /new", "snapshot clone other", "reset clone"] {
        assert!(fails(dir, line, 2).contains("2 names"), "{line}");
    }
    fs::remove_file(dir.join("snapshot")).unwrap();
    ok(dir, "mkdir clone /new");
    fs::rename(image(dir, "ext4"), dir.join("moved")).unwrap();
    let told = fails(dir, "ls clone", 3);
    assert!(told.contains("ext4.img is missing"), "{told}");
    ok(dir, "commit clone new --base moved");
    let mut last = "moved".to_owned();
    for number in 0..33 {
        let name = format!("above.{number}");
        let cloned = run(dir, &format!("clone {last} {name}"));
        if number < 32 {
            assert!(cloned.status.success(), "{number}");
        } else {
            let told = String::from_utf8_lossy(&cloned.stderr).into_owned();
            assert!(told.contains("more than 32 overlays"), "{told}");
        }
        last = name;
    }
    assert_eq!(hostname(dir, "above.31"), "image\n");
}

#[cfg(target_os = "linux")]
#[test]
fn clones_in_use_and_their_base_are_locked() {
    use crate::mount::Mounting;
    require!(Fuse, Tool("e2fsck"), Tool("xfs_repair"));
    let dir = scratch();
    let dir = dir.path();
    for base in bases(dir) {
        let clone = format!("{base}.clone");
        ok(dir, &format!("clone {base} {clone}"));
        let mounted = Mounting::new(&dir.join(&clone)).start();
        fs::write(mounted.join("etc/hostname"), "mounted\n").unwrap();
        for line in [
            format!("mkdir {clone} /new"),
            format!("snapshot {clone} new"),
            format!("reset {clone}"),
            format!("mkdir {base} /new"),
            format!("commit --force {clone} {base}"),
        ] {
            assert!(!run(dir, &line).status.success(), "{line}");
        }
        // Others can be created and changed.
        ok(dir, &format!("clone {base} {base}.other"));
        set_hostname(dir, &format!("{base}.other"), "other\n");
        mounted.unmount();
        assert_eq!(hostname(dir, &clone), "mounted\n");
        assert_eq!(hostname(dir, &base), "image\n");
        let mounted = Mounting::new(&dir.join(&clone)).start();
        fs::write(mounted.join("synced"), "synced").unwrap();
        fs::File::open(mounted.join("synced")).unwrap().sync_all().unwrap();
        // A crash: the log of the clone is replayed by the next command.
        mounted.kill();
        ok(dir, &format!("snapshot {clone} {base}.crashed"));
        assert_eq!(ok(dir, &format!("cat {clone} /synced")), b"synced");
        assert!(run(dir, &format!("recover {clone}")).status.success());
        judge(dir, &clone);
    }
}
