//! Valid but unusual images made by other programs: neither the check nor a repair reports anything.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use testkit::{KernelMount, Mke2fs, MountOptions, require, scratch};
use vfs::FileSystem;
use vfs::check::Severity;

use super::sound::file_device;
use super::{assert_sound, check, show};
use crate::common::image::{device, golden};
use crate::repair::{apply, describe, plan};

const MIB: u64 = 1 << 20;

/// Asserts that the check, a repair and e2fsck find nothing.
#[track_caller]
fn assert_untouched(image: &Path) {
    testkit::e2fsck(image);
    assert_sound("the image", file_device(image));
    let bytes = fs::read(image).unwrap();
    let made = plan(&bytes).unwrap();
    assert!(made.findings.is_empty() && made.steps.is_empty(), "{}", describe(&made));
}

fn tree(work: &Path) -> PathBuf {
    let tree = work.join("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    for name in ["f1", "f2", "f3"] {
        fs::write(tree.join("sub").join(name), name.repeat(100)).unwrap();
    }
    tree
}

/// Returns the first block of a file.
pub(super) fn first_block(image: &Path, path: &str) -> u64 {
    let text = testkit::debugfs(image, &format!("blocks {path}"));
    let number = text.split_whitespace().next().and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("{path}: {text}"))
}

fn write_at(image: &Path, at: u64, bytes: &[u8]) {
    File::options().write(true).open(image).unwrap().write_all_at(bytes, at).unwrap();
}

#[test]
fn directories_removed_while_open_are_no_subdirectories() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    for arguments in [["-O", "orphan_file"], ["-O", "^orphan_file"]] {
        let work = scratch();
        let (image, crashed) = (work.path().join("image"), work.path().join("crashed"));
        Mke2fs::new("ext4").arguments(arguments).create(&image, 32 * MIB);
        let mount = KernelMount::new(&image, &MountOptions::read_write("ext4"));
        let top = mount.path().join("top");
        fs::create_dir(&top).unwrap();
        let open: Vec<File> = (0..5)
            .map(|number| {
                let path = top.join(number.to_string());
                fs::create_dir(&path).unwrap();
                let directory = File::open(&path).unwrap();
                fs::remove_dir(&path).unwrap();
                directory
            })
            .collect();
        rustix::fs::syncfs(&open[0]).unwrap();
        testkit::copy_image(&image, &crashed);
        drop(open);
        mount.unmount();
        let (findings, _) = check(file_device(&crashed)).unwrap();
        assert!(findings.is_empty(), "{arguments:?}: {}", show(&findings[0]));
        let bytes = fs::read(&crashed).unwrap();
        let made = plan(&bytes).unwrap();
        assert!(made.findings.is_empty() && made.left.is_empty(), "{}", describe(&made));
        fs::write(&crashed, apply(&bytes, &made.steps)).unwrap();
        assert_untouched(&crashed);
    }
}

#[test]
fn a_directory_with_names_that_was_removed_gives_them_to_lost_and_found() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    // The directory is on the orphan list without links; on it with links, so that it keeps its names; or still has a
    // name.
    for (links, has_name) in [(0, false), (2, false), (0, true)] {
        let work = scratch();
        let image = work.path().join("image");
        let tree = tree(work.path());
        Mke2fs::new("ext4").features("^orphan_file").populate(&tree).create(&image, 8 * MIB);
        let stat = testkit::debugfs(&image, "stat /sub");
        let ino = stat.split_whitespace().nth(1).unwrap().to_owned();
        testkit::debugfs_write(&image, &format!("set_inode_field <{ino}> links_count {links}"));
        testkit::debugfs_write(&image, &format!("set_super_value last_orphan {ino}"));
        if !has_name {
            testkit::debugfs_write(&image, "unlink /sub");
        }
        let bytes = fs::read(&image).unwrap();
        let made = plan(&bytes).unwrap();
        let codes: Vec<_> = made.findings.iter().map(|finding| finding.code.name).collect();
        let expected = if has_name { "ext4-directory-inode" } else { "ext4-inode-unattached" };
        assert!(codes.contains(&expected), "{links} {has_name}: {codes:?}");
        assert!(made.left.is_empty(), "{links} {has_name}: {}", describe(&made));
        fs::write(&image, apply(&bytes, &made.steps)).unwrap();
        assert_untouched(&image);
        let fs = ext4::Ext4::open(file_device(&image), &ext4::OpenOptions::default()).unwrap();
        let found = fs.lookup(fs.root(), b"lost+found").unwrap();
        // A directory that still has links returns to its parent.
        let home = if links == 0 { Some(found) } else { fs.lookup(fs.root(), b"sub").ok() };
        let mut names = 0;
        fs.for_each_entry(home.expect("a directory"), &mut |_| {
            names += 1;
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        assert!(names >= 3, "{links} {has_name}: {names} names");
    }
}

#[test]
fn a_journal_with_a_name_is_sound() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("tune2fs"), Mount("ext4"));
    let work = scratch();
    let image = work.path().join("image");
    let tree = tree(work.path());
    Mke2fs::new("ext2").populate(&tree).create(&image, 32 * MIB);
    let mount = KernelMount::new(&image, &MountOptions::read_write("ext4"));
    let device = fs::metadata(mount.path()).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let place = fs::read_link(format!("/sys/dev/block/{major}:{minor}")).unwrap();
    let place = Path::new("/dev").join(place.file_name().unwrap());
    let tuned = testkit::command("tune2fs").arg("-j").arg(&place).output().unwrap();
    assert!(tuned.status.success(), "{tuned:?}");
    assert!(mount.path().join(".journal").exists());
    mount.unmount();
    assert_untouched(&image);
}

#[test]
fn files_share_their_contents_where_the_feature_says_so() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let work = scratch();
    let image = work.path().join("image");
    let tree = tree(work.path());
    Mke2fs::new("ext2").populate(&tree).create(&image, 8 * MIB);
    let (file, directory) = (first_block(&image, "/sub/f1"), first_block(&image, "/sub"));
    testkit::debugfs_write(&image, "feature shared_blocks");
    testkit::debugfs_write(&image, &format!("set_inode_field /sub/f2 block[0] {file}"));
    super::sound::settle(&image);
    assert_untouched(&image);
    // A directory block is not shareable file contents.
    testkit::debugfs_write(&image, &format!("set_inode_field /sub/f3 block[0] {directory}"));
    let (findings, _) = check(file_device(&image)).unwrap();
    assert!(findings.iter().any(|finding| finding.code.name == "ext4-block-shared"));
    // Without the feature, sharing is damage.
    testkit::debugfs_write(&image, &format!("set_inode_field /sub/f3 block[0] {file}"));
    testkit::debugfs_write(&image, "feature ^shared_blocks");
    let (findings, _) = check(file_device(&image)).unwrap();
    assert!(findings.iter().any(|finding| finding.code.name == "ext4-block-shared"));
}

#[test]
fn images_of_the_hurd_are_sound() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let work = scratch();
    let image = work.path().join("image");
    let tree = tree(work.path());
    // The Hurd stores no types in entries, because translators change them.
    Mke2fs::new("ext2").block_size(1024).populate(&tree).create(&image, 8 * MIB);
    testkit::debugfs_write(&image, "set_super_value creator_os 1");
    assert_untouched(&image);
    let block = first_block(&image, "/sub");
    // The entries `.`, `..` and the first name have 12 bytes each.
    for entry in 0..3 {
        write_at(&image, block * 1024 + entry * 12 + 7, &[0]);
    }
    assert_untouched(&image);
    // A passive translator has a separate block.
    testkit::debugfs_write(&image, "set_inode_field /sub/f1 translator 5000");
    testkit::debugfs_write(&image, "set_inode_field /sub/f1 version 5000");
    super::sound::settle(&image);
    assert!(testkit::debugfs(&image, "testb 5000").contains("marked in use"));
    assert_untouched(&image);
}

#[test]
fn an_image_of_more_than_65_535_groups_is_sound() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let work = scratch();
    let image = work.path().join("image");
    // Group 78,125 has a backup.
    Mke2fs::new("ext4")
        .features("^has_journal")
        .arguments(["-N", "1300000", "-E", "lazy_itable_init=1"])
        .create(&image, 10 << 40);
    let summary = assert_sound("10 TiB", file_device(&image));
    assert!(summary.blocks > 78_125 << 15);
}

#[test]
fn missing_backups_are_harmless_and_written_again() {
    require!(Tool("e2fsck"));
    for name in ["ext4", "groups", "meta-bg", "ext3"] {
        let mut image = golden(name);
        let victim = super::victim::Victim::of(image.clone());
        let geometry = victim.layout.geometry;
        for group in geometry.groups().skip(1) {
            if let Some(block) = geometry.superblock_of(group) {
                let start = geometry.byte_of(block) as usize;
                let end = geometry.byte_of(geometry.base_metadata(group).end) as usize;
                // In the first groups of a meta group, this is a primary descriptor block.
                let is_copy = geometry.gdt_index(block.plus(1)).is_none();
                let end = if is_copy { end } else { start + geometry.block_size() as usize };
                image[start..end].fill(0);
            }
        }
        let (findings, _) = check(device(&image)).unwrap();
        let is_harmless =
            findings.iter().all(|finding| finding.code.severity == Severity::Harmless);
        assert!(
            is_harmless,
            "{name}: {}",
            findings.iter().map(show).collect::<Vec<_>>().join("\n")
        );
        let made = plan(&image).unwrap();
        assert!(made.left.is_empty(), "{name}: {}", describe(&made));
        let after = apply(&image, &made.steps);
        assert_sound(name, device(&after));
        assert_eq!(super::victim::judge(&after), None, "{name}");
    }
}
