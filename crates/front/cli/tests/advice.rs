//! Common first errors: each message must tell the user what to do next.

use std::fs::{self, File};
use std::process::Command;

use testkit::scratch;

use crate::disk;
use crate::program::{fails, run};

/// Creates a directory with an image, a disk and files that are not images.
fn home() -> tempfile::TempDir {
    let home = scratch();
    let dir = home.path();
    fs::create_dir_all(dir.join("tree/etc")).unwrap();
    fs::write(dir.join("tree/etc/hostname"), "box\n").unwrap();
    fs::write(dir.join("large"), vec![7; 20 << 20]).unwrap();
    fs::write(dir.join("text"), "no image\n".repeat(1000)).unwrap();
    File::create(dir.join("zeros")).unwrap().set_len(1 << 20).unwrap();
    let built = run(dir, "build tree image --size 16M");
    assert!(built.status.success(), "{built:?}");
    disk::with_partition(&dir.join("disk"), &fs::read(dir.join("image")).unwrap());
    home
}

#[test]
fn each_message_says_what_to_do_next() {
    let home = home();
    let dir = home.path();
    for (line, status, next) in [
        // No file system, or one at another offset.
        ("ls zeros", 3, "--partition or --offset"),
        ("ls text", 3, "--partition or --offset"),
        ("ls disk", 3, "choose one with --partition N"),
        ("ls --partition 2 disk", 1, "the table has: 1"),
        ("ls --partition 1 image", 1, "leave --partition out"),
        ("ls tree", 4, "an image must be a regular file or a block device"),
        // Out of space.
        ("build . new --size 8M", 4, "choose a larger --size"),
        ("cp large image:/large", 4, "remove files, or build a larger image"),
        ("shrink image --size 1M", 3, "--size min --dry-run"),
        ("grow image --size 8M", 2, "diskwright shrink"),
        // Existing or missing files.
        ("build tree image", 2, "--force"),
        ("extract image tree", 4, "--force"),
        ("cat image /nothing", 1, "diskwright ls"),
        ("rm image /etc", 1, "-r"),
        ("rmdir image /etc", 1, "diskwright rm -r"),
        ("cp tree image:/x", 2, "-r"),
        ("mkdir image /etc", 1, "choose another name"),
        // Drop-in programs.
        ("as mke2fs new", 1, "write a size after its name"),
        ("as resize2fs image 1M", 1, "--size min --dry-run"),
        ("as xfs_repair image", 1, "e2fsck"),
        ("as make_ext4fs new tree", 1, "-l"),
    ] {
        let said = fails(dir, line, status);
        assert!(said.contains(next), "{line}: {said}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_diskwright"));
    let asked = command.current_dir(dir).args(["as", "debugfs", "-R", "cat /x", "image"]);
    let said = String::from_utf8(asked.output().unwrap().stderr).unwrap();
    assert!(said.contains("diskwright ls"), "{said}");
}

#[test]
fn findings_are_followed_by_their_repairs() {
    use std::os::unix::fs::FileExt;
    let home = home();
    let dir = home.path();
    let image = File::options().write(true).open(dir.join("image")).unwrap();
    // A count in the superblock, so that its checksum is wrong.
    image.write_all_at(&[1], 1024 + 16).unwrap();
    let said = fails(dir, "ls image", 3);
    assert!(said.contains("diskwright repair") || said.contains("diskwright check"), "{said}");
    let said = fails(dir, "mkdir image /new", 3);
    assert!(said.contains("diskwright repair") || said.contains("diskwright check"), "{said}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_mount_reports_the_obstacle() {
    let home = home();
    let dir = home.path();
    fs::create_dir(dir.join("place")).unwrap();
    for (line, status, next) in [
        ("mount image nowhere", 4, "create it first"),
        ("mount image text", 4, "not a directory"),
        ("unmount place", 1, "diskwright mounts"),
    ] {
        let said = fails(dir, line, status);
        assert!(said.contains(next), "{line}: {said}");
    }
    testkit::require!(Fuse);
    assert!(run(dir, "mount image place").status.success());
    let said = ["rm image /etc/hostname", "mount image place", "check image", "repair image"]
        .map(|line| (line, fails(dir, line, 4)));
    assert!(run(dir, "unmount place").status.success());
    for (line, said) in said {
        assert!(said.contains("unmount it first, with diskwright unmount"), "{line}: {said}");
    }
}

#[test]
#[cfg(not(feature = "anywhere"))]
fn missing_build_features_are_named() {
    let home = home();
    let dir = home.path();
    for (line, status) in [
        ("publish image https://example.org/x", 2),
        ("volume create x", 2),
        ("gc x", 2),
        ("ls https://example.org/a.img", 2),
    ] {
        let said = fails(dir, line, status);
        assert!(said.contains("--features anywhere"), "{line}: {said}");
    }
}
