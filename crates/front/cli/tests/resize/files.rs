//! Images that are whole files.

use std::fs::File;

use testkit::require;

use crate::check::common::{build, ends, image, object, run};
use crate::program::diskwright;

#[test]
fn a_file_grows_and_shrinks_with_its_contents() {
    require!(Tool("e2fsck"));
    let home = image("--fs ext4 --size 64M");
    let path = home.path().join("a.img");
    let report = object(home.path(), "grow a.img --size 300M --json", 0);
    assert_eq!(report["after"]["bytes"], 300 << 20, "{report}");
    assert_eq!(
        (report["before"]["bytes"].as_u64(), &report["partition"]),
        (Some(64 << 20), &().into())
    );
    assert_eq!(path.metadata().unwrap().len(), 300 << 20);
    testkit::e2fsck_verdict(&path).unwrap();
    let said = run(home.path(), "grow a.img --size 300M");
    assert_eq!(said.status, 0);
    assert!(said.messages.contains("nothing to do"), "{}", said.messages);
    let planned = object(home.path(), "shrink a.img --size min --dry-run --json", 0);
    assert_eq!(path.metadata().unwrap().len(), 300 << 20);
    let report = object(home.path(), "shrink a.img --size min --json", 0);
    assert_eq!(report["before"], planned["before"]);
    let bytes = report["after"]["bytes"].as_u64().unwrap();
    assert!(bytes < 40 << 20, "{report}");
    assert_eq!(path.metadata().unwrap().len(), bytes);
    testkit::e2fsck_verdict(&path).unwrap();
    assert_eq!(ends(home.path(), "cat a.img /dir/file", 0), "contents");
    assert_eq!(ends(home.path(), "check a.img --json", 0).lines().count(), 1);
}

#[test]
fn xfs_grows_too() {
    require!(Tool("xfs_repair"));
    let home = image("--fs xfs --small --size 64M");
    let path = home.path().join("a.img");
    let report = object(home.path(), "grow a.img --size 320M --json", 0);
    assert_eq!(report["after"]["bytes"], 320 << 20, "{report}");
    assert_eq!(path.metadata().unwrap().len(), 320 << 20);
    testkit::judge(&path);
    assert_eq!(ends(home.path(), "cat a.img /dir/file", 0), "contents");
}

#[test]
fn without_a_size_the_file_system_fills_its_file() {
    require!(Tool("e2fsck"));
    let home = image("--fs ext4 --size 64M");
    let path = home.path().join("a.img");
    File::options().write(true).open(&path).unwrap().set_len(200 << 20).unwrap();
    let report = object(home.path(), "grow a.img --json", 0);
    assert_eq!(report["after"]["bytes"], 200 << 20, "{report}");
    testkit::e2fsck_verdict(&path).unwrap();
}

#[test]
fn invalid_sizes_are_refused_without_changes() {
    let home = image("--fs ext4 --size 64M");
    build(home.path(), "x.img", "--fs xfs --small --size 64M");
    let path = home.path().join("a.img");
    // An old image; otherwise the time of the last change would differ.
    let mut old = diskwright();
    old.args(["build", "source", "a.img", "--size", "64M", "--force"]).current_dir(home.path());
    assert!(old.env("SOURCE_DATE_EPOCH", "1500000000").output().unwrap().status.success());
    let before = testkit::digest(&path);
    for (line, status, words) in [
        ("grow a.img --size 32M", 2, "diskwright shrink"),
        ("shrink a.img --size 128M", 2, "diskwright grow"),
        ("shrink a.img --size 1M", 3, "--size min"),
        ("grow a.img --partition 1 --size 99M", 1, "no partition table"),
        ("shrink x.img --size 32M", 3, "XFS"),
        ("grow nothing.img --size 1G", 4, "nothing.img"),
        ("grow source --size 1G", 4, "a directory"),
    ] {
        let said = run(home.path(), line);
        assert_eq!(said.status, status, "{line}: {}", said.messages);
        assert!(said.messages.contains(words), "{line}: {}", said.messages);
    }
    assert_eq!(testkit::digest(&path), before);
}

#[test]
fn damaged_images_and_images_in_use_are_not_resized() {
    let home = image("--fs ext4 --size 64M");
    let path = home.path().join("a.img");
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.lock().unwrap();
    let said = run(home.path(), "grow a.img --size 1G");
    assert_eq!((said.status, said.messages.contains("in use")), (4, true), "{}", said.messages);
    file.unlock().unwrap();
    // A free block count in the first descriptor, whose checksum is then wrong.
    std::os::unix::fs::FileExt::write_all_at(&file, &[9], 4096 + 12).unwrap();
    for line in ["grow a.img --size 1G", "shrink a.img --size min"] {
        let said = run(home.path(), line);
        assert_eq!(said.status, 3, "{line}: {}", said.messages);
        assert!(said.messages.contains("diskwright"), "{line}: {}", said.messages);
    }
    assert_eq!(path.metadata().unwrap().len(), 64 << 20);
}
