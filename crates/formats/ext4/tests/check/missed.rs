//! Damage that once only other programs found: the check finds it, and after a repair they find nothing.

use std::fs;
use std::path::Path;

use testkit::{KernelMount, Mke2fs, MountOptions, require, scratch};
use vfs::Ino;

use super::sound::{file_device, settle};
use super::unusual::first_block;
use super::{assert_sound, check, show};
use crate::common::image::{GOLDEN, device, golden};
use crate::common::layout::{ImageStructures, Structure, StructureKind, edit_superblock};
use crate::repair::{apply, describe, plan};

const MIB: u64 = 1 << 20;

/// Asserts that the check finds this code in an image, and that e2fsck and the check accept the repaired image.
#[track_caller]
fn assert_found(what: &str, image: &[u8], code: &str) -> Vec<u8> {
    let made = plan(image).unwrap();
    let found: Vec<_> = made.findings.iter().map(show).collect();
    assert!(found.iter().any(|line| line.starts_with(code)), "{what}: {found:?}");
    assert!(made.left.is_empty(), "{what}: {}", describe(&made));
    let after = apply(image, &made.steps);
    assert_sound(what, device(&after));
    assert_eq!(super::victim::judge(&after), None, "{what}: {}", describe(&made));
    after
}

/// Returns an image of mke2fs with a few files, changed by debugfs requests.
fn changed(arguments: &[&str], requests: &[&str]) -> Vec<u8> {
    let work = scratch();
    let (tree, image) = (work.path().join("tree"), work.path().join("image"));
    fs::create_dir_all(tree.join("sub")).unwrap();
    for name in ["f1", "f2"] {
        fs::write(tree.join("sub").join(name), name.repeat(100)).unwrap();
    }
    std::os::unix::fs::symlink("a".repeat(100), tree.join("slow")).unwrap();
    Mke2fs::new("ext4")
        .arguments(arguments.iter().copied())
        .populate(&tree)
        .create(&image, 16 * MIB);
    testkit::e2fsck(&image);
    requests.iter().for_each(|request| drop(testkit::debugfs_write(&image, request)));
    assert!(
        testkit::e2fsck_verdict(&image).is_err() || requests.is_empty(),
        "e2fsck finds it, too"
    );
    fs::read(&image).unwrap()
}

#[test]
fn reserved_inodes_have_no_mode() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    for (number, mode) in [(9, "0100644"), (6, "040755"), (10, "01"), (5, "040755")] {
        let request = format!("set_inode_field <{number}> mode {mode}");
        let image = changed(&[], &[&request]);
        assert_found(&request, &image, "ext4-inode-special");
    }
}

#[test]
fn fixed_fields_end_at_a_multiple_of_four() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    for size in [1, 2, 3, 5, 160] {
        let request = format!("set_inode_field /sub/f1 extra_isize {size}");
        let image = changed(&[], &[&request]);
        assert_found(&request, &image, "ext4-inode-field");
    }
}

#[test]
fn the_target_of_a_link_is_in_one_block_that_the_inode_names() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    for place in ["1", "IND", "DIND"] {
        let request = format!("set_inode_field /slow block[{place}] 9000");
        let image = changed(&["-O", "^extent,^64bit"], &[&request]);
        let after = assert_found(&request, &image, "ext4-symlink");
        let fs = ext4::Ext4::open(device(&after), &ext4::OpenOptions::default()).unwrap();
        let link = vfs::FileSystem::lookup(&fs, Ino(2), b"slow").unwrap();
        assert_eq!(vfs::FileSystem::readlink(&fs, link).unwrap(), [b'a'; 100]);
    }
}

#[test]
fn files_in_clusters_have_extents() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let work = scratch();
    let image = work.path().join("image");
    fs::write(&image, changed(&["-O", "bigalloc", "-C", "16384"], &[])).unwrap();
    let block = first_block(&image, "/sub/f1");
    testkit::debugfs_write(&image, "set_inode_field /sub/f1 flags 0");
    for index in 1..12 {
        testkit::debugfs_write(&image, &format!("set_inode_field /sub/f1 block[{index}] 0"));
    }
    for index in ["IND", "DIND", "TIND"] {
        testkit::debugfs_write(&image, &format!("set_inode_field /sub/f1 block[{index}] 0"));
    }
    testkit::debugfs_write(&image, &format!("set_inode_field /sub/f1 block[0] {block}"));
    let bytes = fs::read(&image).unwrap();
    fs::write(&image, assert_found("block map", &bytes, "ext4-inode-flags")).unwrap();
    assert!(testkit::debugfs(&image, "cat /sub/f1").contains(&"f1".repeat(100)));
}

#[test]
fn names_of_attributes_have_no_zero_bytes() {
    require!(Tool("e2fsck"));
    for (name, _) in GOLDEN {
        let mut image = golden(name);
        let layout = ImageStructures::of(&image);
        let is_of_attributes = |s: &&Structure| s.kind == StructureKind::Attributes;
        let Some(found) = layout.structures.iter().find(is_of_attributes) else { continue };
        let block = layout.block_range(found.block);
        // The name of the first entry follows the header of the block and of the entry.
        image[block.start + 32 + 16] = 0;
        layout.seal(&mut image);
        assert!(super::victim::judge(&image).is_some(), "{name}: e2fsck finds it, too");
        assert_found(name, &image, "ext4-xattr-entry");
    }
}

#[test]
fn fields_that_only_a_mount_reads_are_checked() {
    require!(Tool("e2fsck"));
    type Edit = fn(&mut ext4::format::superblock::RawSuperblock);
    let edits: [(&str, Edit); 9] = [
        ("feature_compat", |raw| raw.feature_compat = (raw.feature_compat.get() | 0x400).into()),
        ("encoding", |raw| raw.feature_incompat = (raw.feature_incompat.get() | 0x20000).into()),
        ("first_data_block", |raw| {
            raw.feature_ro_compat = (raw.feature_ro_compat.get() | 0x200).into();
        }),
        ("mount_opts", |raw| raw.mount_opts = [b'x'; 64]),
        ("want_extra_isize", |raw| raw.want_extra_isize = 1024.into()),
        ("min_extra_isize", |raw| raw.min_extra_isize = 1024.into()),
        ("def_hash_version", |raw| raw.def_hash_version = 253),
        ("def_hash_version", |raw| raw.def_hash_version = 6),
        ("journal_dev", |raw| raw.journal_dev = 0x801.into()),
    ];
    for (field, edit) in edits {
        let mut image = golden("journal");
        edit_superblock(&mut image, edit);
        assert_found(field, &image, "ext4-superblock-field");
    }
}

#[test]
fn an_unreferenced_journal_is_found() {
    require!(Tool("e2fsck"));
    let mut image = golden("journal");
    edit_superblock(&mut image, |raw| raw.journal_inum = 0.into());
    assert_found("journal_inum", &image, "ext4-journal-inode");
}

/// Returns an image with an encrypted directory, created by the kernel; `None` if the kernel does not support
/// encryption.
fn encrypted(work: &Path) -> Option<Vec<u8>> {
    let image = work.join("image");
    Mke2fs::new("ext4").features("encrypt").create(&image, 16 * MIB);
    let options =
        MountOptions { extra: "test_dummy_encryption", ..MountOptions::read_write("ext4") };
    let Ok(mount) = KernelMount::attempt(&image, &options) else {
        println!("SKIPPED: this kernel has no encryption for tests");
        return None;
    };
    let top = mount.path().join("top");
    for name in ["one", "two"] {
        fs::create_dir_all(top.join(name)).unwrap();
        fs::write(top.join(name).join("file"), name).unwrap();
    }
    mount.unmount();
    assert_sound("encrypted", file_device(&image));
    fs::read(&image).ok()
}

/// Returns the offsets of the entry of the encryption context in an inode, and of the context.
fn context_of(image: &[u8], layout: &ImageStructures, ino: Ino) -> Option<(usize, usize)> {
    const CONTEXT: [u8; 2] = [1, 9];
    let slot = layout.slot_range(ino);
    let entries = slot.start + 128 + 32 + 4;
    let entry = entries + image[entries..slot.end].windows(2).position(|at| at == CONTEXT)?;
    let offset = u16::from_le_bytes([image[entry + 2], image[entry + 3]]);
    Some((entry, entries + usize::from(offset)))
}

#[test]
fn contexts_of_encryption_are_checked() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    let work = scratch();
    let Some(sound) = encrypted(work.path()) else { return };
    let layout = ImageStructures::of(&sound);
    let with_context: Vec<_> = layout
        .inodes
        .iter()
        .filter_map(|ino| Some((*ino, context_of(&sound, &layout, *ino)?)))
        .collect();
    assert!(with_context.len() >= 5, "{with_context:?}");
    for (ino, (entry, context)) in with_context {
        let damaged = |what: &str, edit: &dyn Fn(&mut [u8]), code: &str| {
            let mut image = sound.clone();
            edit(&mut image);
            layout.seal(&mut image);
            let what = format!("inode {ino}: {what}");
            assert!(super::victim::judge(&image).is_some(), "{what}: e2fsck finds it, too");
            assert_found(&what, &image, code);
        };
        damaged("too short", &|image| image[entry + 8] = 39, "ext4-encryption-context");
        damaged("of version 1", &|image| image[context] = 1, "ext4-encryption-context");
        damaged("without a name", &|image| image[entry + 1] = 8, "ext4-inode-flags");
        // The first one is that of the top directory, whose children then differ from it.
        damaged("of another key", &|image| image[context + 9] ^= 1, "ext4-directory-policy");
    }
}

#[test]
fn usage_of_values_in_inodes_is_compared() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("tune2fs"), Tool("debugfs"), Mount("ext4"));
    let work = scratch();
    let image = work.path().join("image");
    Mke2fs::new("ext4").features("ea_inode").create(&image, 32 * MIB);
    let mount = KernelMount::new(&image, &MountOptions::read_write("ext4"));
    for (number, owner) in (0..6_usize).zip([7, 8].into_iter().cycle()) {
        let path = mount.path().join(number.to_string());
        fs::write(&path, "contents").unwrap();
        std::os::unix::fs::chown(&path, Some(owner), Some(owner)).unwrap();
        for at in 0..number {
            let (name, value) = (format!("user.{at}"), vec![b'v'; 5000 * (at + 1)]);
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&path, name.as_str(), &value, flags).unwrap();
        }
    }
    mount.unmount();
    // tune2fs counts the usage.
    let tuned = testkit::command("tune2fs").args(["-O", "quota"]).arg(&image).output().unwrap();
    assert!(tuned.status.success(), "{tuned:?}");
    settle(&image);
    let summary = assert_sound("quota and ea_inode", file_device(&image));
    assert!(summary.is_complete);
    // The quota files have the usage for another owner than the inodes.
    testkit::debugfs_write(&image, "set_inode_field /5 uid 9");
    let (findings, _) = check(file_device(&image)).unwrap();
    let codes: Vec<_> = findings.iter().map(|finding| finding.code.name).collect();
    assert!(codes.contains(&"ext4-quota-usage"), "{codes:?}");
    assert!(testkit::e2fsck_verdict(&image).is_err());
    let bytes = fs::read(&image).unwrap();
    assert_found("another owner", &bytes, "ext4-quota-usage");
}
