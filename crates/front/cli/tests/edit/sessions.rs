//! Locks, partitions, exit statuses, and images that cannot be changed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use testkit::{Format, Mke2fs, MkfsXfs, MountOptions, judge, require};

use crate::disk::{self, START};
use crate::edit::common::{OWN_XFS, own_image, run};
use crate::program::{fails, ok};

#[test]
fn an_image_in_use_is_refused_at_once() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    ["", OWN_XFS].into_iter().for_each(an_image_in_use);
}

fn an_image_in_use(options: &str) {
    let dir = testkit::scratch();
    let dir = dir.path();
    let image = own_image(dir, "a.img", options);
    let writer = File::open(&image).unwrap();
    writer.try_lock().unwrap();
    let said = fails(dir, "mkdir a.img /a", 4);
    assert!(said.contains("in use by another program: retry"), "{said}");
    let said = fails(dir, "ls a.img", 4);
    assert!(said.contains("--norecovery"), "{said}");
    ok(dir, "ls --norecovery a.img");
    // Its former name.
    ok(dir, "ls --stale a.img");
    writer.unlock().unwrap();
    writer.try_lock_shared().unwrap();
    ok(dir, "ls a.img");
    fails(dir, "mkdir a.img /a", 4);
    fails(dir, "cp a.img a.img:/b", 4);
    drop(writer);
    ok(dir, "mkdir a.img /a");
    judge(&image);
}

#[test]
fn an_image_that_the_kernel_has_mounted_is_refused() {
    require!(Mount("ext4"), Mount("xfs"), Tool("e2fsck"), Tool("xfs_repair"));
    for (kernel, options) in [("ext4", ""), ("xfs", OWN_XFS)] {
        let dir = testkit::scratch();
        let image = own_image(dir.path(), "a.img", options);
        {
            let _mounted = testkit::KernelMount::new(&image, &MountOptions::read_write(kernel));
            let said = fails(dir.path(), "mkdir a.img /a", 4);
            assert!(said.contains("/dev/loop") && said.contains("unmount"), "{said}");
        }
        judge(&image);
    }
}

#[test]
fn a_partition_is_changed_and_nothing_around_it() {
    require!(Tool("e2fsck"), Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("mke2fs"));
    for format in [Format::Ext, Format::Xfs] {
        a_partition_is_changed(format);
    }
}

fn a_partition_is_changed(format: Format) {
    let dir = testkit::scratch();
    let dir = dir.path();
    match format {
        Format::Ext => Mke2fs::new("ext4").create(&dir.join("part"), 16 << 20),
        Format::Xfs => MkfsXfs::default().create(&dir.join("part"), 32 << 20),
    }
    let part = fs::read(dir.join("part")).unwrap();
    let (disk, mbr) = disk::with_partition(&dir.join("disk"), &part);
    disk.write_all_at(&[7; 4096], START + part.len() as u64).unwrap();
    fs::write(dir.join("f"), "contents").unwrap();
    ok(dir, "cp --partition 1 f disk:/f");
    ok(dir, "chmod --offset 1M disk 600 /f");
    assert_eq!(ok(dir, "cat --partition 1 disk /f"), "contents");
    let said = fails(dir, "mkdir disk /d", 3);
    assert!(said.contains("choose one with --partition"), "{said}");
    let after = fs::read(dir.join("disk")).unwrap();
    assert_eq!(after[..512], mbr);
    assert!(after[512..START as usize].iter().all(|&b| b == 0));
    assert!(after[START as usize + part.len()..][..4096].iter().all(|&b| b == 7));
    fs::write(dir.join("part"), &after[START as usize..][..part.len()]).unwrap();
    judge(dir.join("part"));
}

#[test]
fn unsupported_changes_report_the_reason() {
    require!(Tool("xfsprogs-6.1/bin/mkfs.xfs"));
    let dir = testkit::scratch();
    let dir = dir.path();
    fs::write(dir.join("text"), "hello").unwrap();
    assert!(fails(dir, "mkdir text /a", 3).contains("neither an ext2/3/4"));
    assert!(fails(dir, "mkdir missing /a", 4).contains("cannot open missing"));
    let (xfs, version_4) = (dir.join("v4"), MkfsXfs::of("xfsprogs-6.1/bin/mkfs.xfs"));
    version_4.options("-m crc=0").create(&xfs, 64 << 20);
    let before = fs::read(&xfs).unwrap();
    assert!(fails(dir, "mkdir v4 /a", 3).contains("version 4"));
    assert!(fails(dir, "recover v4", 3).contains("version 4"));
    ok(dir, "ls v4");
    assert!(fs::read(&xfs).unwrap() == before, "nothing is written");
    assert!(fails(dir, "cp text text2", 2).contains("IMAGE:PATH"));
}

/// The MMP block says "unused" after each command, and an image that another host checks is refused.
#[test]
fn images_with_mmp_are_changed_unless_another_host_uses_them() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("dumpe2fs"), Tool("debugfs"));
    let dir = testkit::scratch();
    let dir = dir.path();
    let image = dir.join("mmp");
    Mke2fs::new("ext4").features("mmp,^metadata_csum").create(&image, 32 << 20);
    let is_unused = || {
        let shown = testkit::command("dumpe2fs").arg("-m").arg(&image).output().unwrap();
        assert!(shown.status.success(), "{shown:?}");
        testkit::e2fsck(&image);
    };
    let before = fs::read(&image).unwrap();
    ok(dir, "repair mmp");
    assert!(fs::read(&image).unwrap() == before, "a sound image is not written");
    for line in ["mkdir mmp /a", "recover mmp", "grow mmp --size 40M", "shrink mmp --size 36M"] {
        ok(dir, line);
        is_unused();
    }
    testkit::debugfs_write(&image, "set_inode_field /a links_count 7");
    fails(dir, "repair mmp --yes", 0);
    is_unused();
    let text = testkit::command("dumpe2fs").arg("-h").arg(&image).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    let number = |key: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim().parse().unwrap()
    };
    let place = number("MMP block number:") * number("Block size:");
    let file = File::options().write(true).open(&image).unwrap();
    // The sequence number of e2fsck.
    file.write_all_at(&0xe24d_4d50_u32.to_le_bytes(), place + 4).unwrap();
    let before = fs::read(&image).unwrap();
    for line in ["mkdir mmp /b", "repair mmp", "grow mmp --size 40M", "recover mmp"] {
        let said = fails(dir, line, 3);
        assert!(said.contains("another host is checking") && said.contains("clear_mmp"), "{said}");
    }
    ok(dir, "ls mmp");
    ok(dir, "check mmp");
    assert!(fs::read(&image).unwrap() == before, "nothing is written");
}

#[test]
fn invalid_arguments_give_status_2() {
    let dir = testkit::scratch();
    for line in [
        "mkdir x",
        "rm x",
        "mv x /a",
        "mv --exchange x /a /b /c",
        "mv -n --exchange x /a /b",
        "ln x /a",
        "ln --owner 1:1 x /a /b",
        "chmod x 755",
        "chmod x 999 /a",
        "chown x user /a",
        "setfattr x /a",
        "setfattr -v 1 x /a",
        "setfattr -n a -x b x /a",
        "truncate x /a",
        "cp a",
        "cp -a --owner 1:1 a b",
        "dump x inode",
        "dump x group one",
        "dump x superblock 1",
        "dump x nothing",
        "recover",
    ] {
        let output = run(dir.path(), &line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(2), "{line}: {output:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{line}");
    }
}

#[test]
fn a_full_image_reports_it_and_stays_valid() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("mkfs.xfs"), Tool("xfs_repair"));
    crate::edit::common::on_each_image(|dir| {
        fs::write(dir.join("old"), "old").unwrap();
        ok(dir, "cp old a.img:/f");
        fs::write(dir.join("large"), vec![1; 80 << 20]).unwrap();
        let said = fails(dir, "cp large a.img:/f", 4);
        assert!(said.contains("no space left") && said.contains("remove files"), "{said}");
        assert_eq!(ok(dir, "cat a.img /f"), "old");
    });
}
