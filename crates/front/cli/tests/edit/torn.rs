//! Images whose first superblock is damaged, or whose groups have wrong checksums. Readable data is
//! read, with a message, and nothing is written.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use testkit::{KernelMount, Mke2fs, MkfsXfs, MountOptions, require, scratch};

use super::common::{own_image, run};

use crate::program::{fails, ok};

/// Commands that read, and commands that write.
const READING: [&str; 6] = [
    "ls a.img",
    "find a.img",
    "cat a.img /file",
    "info a.img",
    "dump a.img inode /",
    "ls --stale a.img",
];
const WRITING: [&str; 4] =
    ["mkdir a.img /new", "chmod a.img 700 /", "recover a.img", "mount a.img ."];

/// Asserts that reading works with a message, and that writing is rejected with a remedy and
/// changes nothing.
fn is_read_by_a_copy(dir: &Path, how: &str, remedy: &str) {
    let before = fs::read(dir.join("a.img")).unwrap();
    for line in READING {
        let output = run(dir, &line.split_whitespace().collect::<Vec<_>>());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{line}: {said}");
        assert!(said.contains("superblock") && said.contains(how), "{line}: {said}");
    }
    let cat = run(dir, &["cat", "a.img", "/file"]);
    assert_eq!(cat.stdout, b"contents");
    for line in WRITING {
        let said = fails(dir, line, 3);
        assert!(said.contains(remedy), "{line}: {said}");
    }
    assert!(fs::read(dir.join("a.img")).unwrap() == before, "nothing was written");
}

/// Remedy in the message about a damaged superblock with a sound copy.
const REMEDY: &str = "restore it with diskwright repair";

fn tear(image: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, at).unwrap();
    file.write_all_at(&bytes.map(|byte| !byte), at).unwrap();
}

/// Time of the last write, which affects only the checksum.
const EXT4_WTIME: u64 = 1024 + 0x30;
/// Offset of the label.
const XFS_LABEL: u64 = 108;

fn put_file(dir: &Path) {
    fs::write(dir.join("file"), "contents").unwrap();
    ok(dir, "cp file a.img:/");
}

#[test]
fn a_torn_superblock_is_read_by_its_copy_and_nothing_is_written() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("mkfs.xfs"));
    for (block_size, size, block) in [(1024, 64 << 20, 8193), (4096, 300 << 20, 32768)] {
        let dir = scratch();
        let image = dir.path().join("a.img");
        Mke2fs::new("ext4").block_size(block_size).create(&image, size);
        put_file(dir.path());
        tear(&image, EXT4_WTIME);
        is_read_by_a_copy(
            dir.path(),
            &format!("backup superblock in block {block} (group 1)"),
            REMEDY,
        );
        // The suggested command helps.
        assert_eq!(run(dir.path(), &["repair", "--yes", "a.img"]).status.code(), Some(0));
        testkit::e2fsck(&image);
        assert_eq!(ok(dir.path(), "cat a.img /file"), "contents");
    }
    let dir = scratch();
    own_image(dir.path(), "a.img", "");
    ok(dir.path(), "build empty a.img --force --size 300M");
    put_file(dir.path());
    tear(&dir.path().join("a.img"), EXT4_WTIME);
    is_read_by_a_copy(dir.path(), "backup superblock in block 32768 (group 1)", REMEDY);

    for options in ["", "--fs xfs --size 300M"] {
        let dir = scratch();
        let image = dir.path().join("a.img");
        if options.is_empty() {
            MkfsXfs::default().create(&image, 400 << 20);
        } else {
            own_image(dir.path(), "empty.img", "");
            ok(dir.path(), &format!("build empty a.img {options}"));
        }
        put_file(dir.path());
        tear(&image, XFS_LABEL);
        is_read_by_a_copy(dir.path(), "copy in group 3", REMEDY);
        assert_eq!(run(dir.path(), &["repair", "--yes", "a.img"]).status.code(), Some(0));
        assert_eq!(ok(dir.path(), "cat a.img /file"), "contents");
    }
}

#[test]
fn a_torn_superblock_does_not_hide_what_the_journal_holds() {
    require!(Tool("mke2fs"), Mount("ext4"), Mount("xfs"), Tool("mkfs.xfs"));
    for (fs_type, at) in [("ext4", EXT4_WTIME), ("xfs", XFS_LABEL)] {
        let dir = scratch();
        let (image, copy) = (dir.path().join("kernel.img"), dir.path().join("a.img"));
        match fs_type {
            "ext4" => Mke2fs::new("ext4").create(&image, 300 << 20),
            _ => MkfsXfs::default().create(&image, 400 << 20),
        }
        let mount = KernelMount::new(&image, &MountOptions::read_write(fs_type));
        fs::write(mount.path().join("file"), "contents").unwrap();
        File::open(mount.path().join("file")).unwrap().sync_all().unwrap();
        testkit::copy_image(&image, &copy);
        mount.unmount();
        let info: serde_json::Value =
            serde_json::from_str(&ok(dir.path(), "info --json a.img")).unwrap();
        assert_eq!(info["needs_recovery"], true, "{fs_type}: {info}");
        let count = |info: &serde_json::Value| info["inodes_free"].as_u64().unwrap();
        let before = count(&info);
        tear(&copy, at);
        let output = run(dir.path(), &["cat", "a.img", "/file"]);
        assert_eq!(output.stdout, b"contents", "{fs_type}: {output:?}");
        let info = run(dir.path(), &["info", "--json", "a.img"]);
        let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
        assert_eq!((&info["needs_recovery"], count(&info)), (&true.into(), before), "{info}");
    }
}

#[test]
fn info_describes_a_crashed_image() {
    require!(Tool("mke2fs"), Mount("ext4"), Tool("dumpe2fs"));
    let dir = scratch();
    let (image, copy) = (dir.path().join("kernel.img"), dir.path().join("a.img"));
    Mke2fs::new("ext4").features("orphan_file").create(&image, 64 << 20);
    let mount = KernelMount::new(&image, &MountOptions::read_write("ext4"));
    fs::write(mount.path().join("file"), "contents").unwrap();
    File::open(mount.path().join("file")).unwrap().sync_all().unwrap();
    testkit::copy_image(&image, &copy);
    mount.unmount();
    let before = fs::read(&copy).unwrap();
    let info: serde_json::Value =
        serde_json::from_str(&ok(dir.path(), "info --json a.img")).unwrap();
    let features = info["features"].to_string();
    assert_eq!(info["needs_recovery"], true, "{info}");
    assert!(features.contains("needs_recovery") && features.contains("orphan_present"), "{info}");
    assert!(ok(dir.path(), "info a.img").contains("needs recovery:                 yes\n"));
    assert!(fs::read(&copy).unwrap() == before, "nothing was written");
    ok(dir.path(), "recover a.img");
    let after: serde_json::Value =
        serde_json::from_str(&ok(dir.path(), "info --json a.img")).unwrap();
    assert_eq!((&after["needs_recovery"], &after["state"]), (&false.into(), &"clean".into()));
    // Before recovery, the free counts are shown as they are after it.
    assert_eq!(after["inodes_free"], info["inodes_free"]);
    testkit::e2fsck(&copy);
}

#[test]
fn wrong_checksums_of_groups_do_not_keep_an_image_from_being_read_as_it_lies() {
    require!(Tool("mke2fs"), Mount("ext4"));
    let dir = scratch();
    let image = dir.path().join("a.img");
    Mke2fs::new("ext4").block_size(4096).create(&image, 300 << 20);
    put_file(dir.path());
    // The checksum of the second descriptor.
    let file = File::options().read(true).write(true).open(&image).unwrap();
    let mut checksum = [0; 2];
    file.read_exact_at(&mut checksum, 4096 + 64 + 0x1e).unwrap();
    file.write_all_at(&checksum.map(|byte| !byte), 4096 + 64 + 0x1e).unwrap();
    drop(file);
    // A kernel mounts it only read-only.
    let read_only = KernelMount::new(&image, &MountOptions::read_only("ext4"));
    assert_eq!(fs::read(read_only.path().join("file")).unwrap(), b"contents");
    read_only.unmount();
    assert!(KernelMount::attempt(&image, &MountOptions::read_write("ext4")).is_err());

    let output = run(dir.path(), &["cat", "--stale", "a.img", "/file"]);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"contents"[..]));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("group 1 has a descriptor with a wrong checksum"), "{said}");
    let said = fails(dir.path(), "cat a.img /file", 3);
    assert!(said.contains("group 1: wrong checksum") && said.contains("--norecovery"), "{said}");
    fails(dir.path(), "mkdir a.img /new", 3);
    // A descriptor with impossible values is rejected by every command.
    let file = File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0xff; 8], 4096 + 64 + 8).unwrap();
    fails(dir.path(), "cat --stale a.img /file", 3);
}
