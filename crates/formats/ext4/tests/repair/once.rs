//! One repair is enough: afterwards the check finds nothing, and another repair does nothing.

use std::path::Path;
use std::sync::Arc;

use ext4::SuperblockPlace;
use ext4::format::features::{Compat, Incompat, RoCompat};
use ext4::format::superblock::RawSuperblock;
use operations::repair::{Staging, make_plan};
use testkit::{Mke2fs, debugfs, debugfs_write, populate_with_kernel, require, scratch};
use zerocopy::{FromBytes, IntoBytes};

use super::against::{carried_out, fault_of_repaired, survivors, with_e2fsck};
use super::{apply, bases, describe, plan, repairer};
use crate::common::image::device;
use crate::common::layout::edit_superblock;
use vfs::check::Silent;

/// Repairs an image and asserts that it is sound.
#[track_caller]
fn repaired(image: &[u8]) -> Vec<u8> {
    let made = plan(image).expect("a plan");
    assert!(!made.findings.is_empty(), "nothing is found");
    let after = carried_out(image, &made).expect("it is carried out");
    if let Some(fault) = fault_of_repaired(&made, &after) {
        panic!("{fault}\n{}", describe(&made));
    }
    after
}

fn made(arguments: &[&str], bytes: u64, change: impl FnOnce(&Path)) -> Vec<u8> {
    let folder = scratch();
    let image = folder.path().join("image");
    let fs_type = if arguments.contains(&"-r") { "ext2" } else { "ext4" };
    Mke2fs::new(fs_type).arguments(arguments.iter().copied()).create(&image, bytes);
    change(&image);
    std::fs::read(&image).unwrap()
}

#[test]
fn a_journal_with_other_users_is_repaired_once() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"));
    for users in [2, 77, 0x10000] {
        let mut place = 0;
        let mut image = made(&["-b", "1024", "-O", "^metadata_csum"], 16 << 20, |image| {
            place = debugfs(image, "bmap <8> 0")
                .split_whitespace()
                .next()
                .unwrap()
                .parse::<usize>()
                .unwrap()
                * 1024;
        });
        image[place + 0x40..place + 0x44].copy_from_slice(&u32::to_be_bytes(users));
        repaired(&image);
        // Version 1 of the journal's superblock does not have the field.
        image[place + 4..place + 8].copy_from_slice(&u32::to_be_bytes(3));
        assert_eq!(plan(&image).expect("a plan").steps.len(), 0);
    }
}

#[test]
fn a_superblock_with_resize_inode_and_meta_bg_is_repaired_once() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"));
    let classic = made(&["-b", "1024", "-g", "2048", "-O", "^flex_bg"], 16 << 20, |image| {
        debugfs_write(image, "feature meta_bg");
    });
    let meta = made(&["-b", "1024", "-O", "meta_bg,^resize_inode"], 16 << 20, |image| {
        debugfs_write(image, "feature resize_inode");
    });
    for image in [classic, meta] {
        let after = repaired(&image);
        let raw = RawSuperblock::read_from_bytes(&after[1024..2048]).unwrap();
        assert!(!raw.features().compat(Compat::RESIZE_INODE));
        assert!(raw.features().incompat(Incompat::META_BG));
    }
}

#[test]
fn a_large_file_in_revision_0_is_repaired_once() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"));
    let image = made(&["-r", "0", "-b", "4096"], 64 << 20, |image| {
        debugfs_write(image, "write /etc/hostname big");
        debugfs_write(image, "sif big size 0x400000000");
    });
    let after = repaired(&image);
    let raw = RawSuperblock::read_from_bytes(&after[1024..2048]).unwrap();
    assert_eq!((raw.rev_level.get(), raw.inode_size.get()), (1, 128));
    assert!(raw.features().ro_compat(RoCompat::LARGE_FILE));
}

#[test]
fn a_lost_superblock_of_revision_0_comes_from_its_copy() {
    require!(Tool("e2fsck"), Tool("mke2fs"));
    let mut image = made(&["-r", "0", "-b", "1024"], 20 << 20, |_| {});
    for group in [1, 2] {
        // Programs without support for the field leave it empty.
        image[(1 + group * 8192) * 1024 + 0x5a..][..2].fill(0);
    }
    image[1024..2048].fill(0);
    repaired(&image);
}

#[test]
fn a_lost_superblock_comes_from_a_copy_in_an_unusual_block() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"));
    for (block_size, group_blocks) in [(1024, 1024), (1024, 4096), (4096, 2048), (2048, 1000)] {
        let (size, group) = (block_size.to_string(), group_blocks.to_string());
        let image = made(&["-b", &size, "-g", &group], 24 << 20, |image| {
            debugfs_write(image, "write /etc/hostname name");
        });
        let mut damaged = image.clone();
        damaged[..2048].fill(0);
        assert!(ext4::has_superblock_copy(&*device(&damaged)), "{block_size} {group_blocks}");
        let (before, after) = (survivors(&image), survivors(&repaired(&damaged)));
        assert_eq!(before.files_kept(&after).len(), before.len());
    }
}

#[test]
fn a_given_copy_replaces_the_superblock() {
    require!(Tool("e2fsck"), Tool("mke2fs"));
    let sound = made(&["-b", "1024", "-g", "1024"], 16 << 20, |_| {});
    // The superblock of another file system, which is valid by itself.
    let other = made(&["-b", "1024"], 8 << 20, |_| {});
    let mut image = sound.clone();
    image[1024..2048].copy_from_slice(&other[1024..2048]);
    let with = |image: &[u8], block, block_bytes| {
        let staging = Arc::new(Staging::new(device(image) as _));
        ext4::repair::take_superblock(&staging, SuperblockPlace { block, block_bytes })?;
        make_plan(&repairer(), &staging, &Silent)
    };
    for block_bytes in [None, Some(1024)] {
        let made = with(&image, 1025, block_bytes).expect("a plan");
        let after = apply(&image, &made.steps);
        assert_eq!(fault_of_repaired(&made, &after), None, "{}", describe(&made));
        let again = with(&after, 1025, block_bytes).expect("a plan");
        assert!(again.steps.is_empty(), "{}", describe(&again));
    }
    assert!(with(&image, 1025, Some(4096)).is_err());
    assert!(with(&image, 1026, None).is_err());
    assert!(with(&image, u64::MAX, None).is_err());
}

#[test]
fn a_directory_of_very_many_directories_is_repaired_once() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Mount("ext4"));
    const COUNT: usize = 65_010;
    let folder = scratch();
    let image = folder.path().join("image");
    let options = ["-b", "1024", "-I", "128", "-N", "66000", "-O", "^has_journal,^metadata_csum"];
    Mke2fs::new("ext4").arguments(options).create(&image, 100 << 20);
    populate_with_kernel(&image, "ext4", |root| {
        (0..COUNT).for_each(|at| std::fs::create_dir(root.join(at.to_string())).unwrap());
    });
    let mut bytes = std::fs::read(&image).unwrap();
    edit_superblock(&mut bytes, |raw| {
        let mut features = raw.features();
        features.ro_compat.remove(RoCompat::DIR_NLINK);
        raw.set_features(&features);
    });
    let after = repaired(&bytes);
    let raw = RawSuperblock::read_from_bytes(&after[1024..2048]).unwrap();
    assert!(raw.features().ro_compat(RoCompat::DIR_NLINK));
}

#[test]
fn counts_of_shared_attributes_are_repaired_once() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"), Mount("ext4"));
    for name in ["inline", "ea-inode", "large-blocks"] {
        let base = bases::one(name);
        let mut structures = base.layout.structures.iter();
        let last = structures
            .rfind(|s| matches!(s.kind, crate::common::layout::StructureKind::Attributes))
            .expect("attributes");
        let block = base.layout.block_range(last.block);
        for count in [0_u32, 1, 77, 2000, u32::MAX] {
            let mut image = base.image.clone();
            image[block.start + 4..block.start + 8].copy_from_slice(count.as_bytes());
            base.layout.seal(&mut image);
            if image == base.image {
                continue;
            }
            let (before, after) = (survivors(&base.image), survivors(&repaired(&image)));
            assert_eq!(before.xattrs_kept(&after), before.xattrs_kept(&before), "{name} {count}");
        }
    }
}

/// Returns the bad block list of an image.
fn bad_blocks(image: &[u8]) -> Vec<u64> {
    let text = testkit::show_bytes(image, |file| {
        let shown = testkit::command("dumpe2fs").arg("-b").arg(file).output().expect("dumpe2fs");
        String::from_utf8(shown.stdout).expect("text")
    });
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

#[test]
fn a_damaged_list_of_bad_blocks_keeps_its_sound_entries() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"), Tool("dumpe2fs"));
    let work = scratch();
    let (list, contents) = (work.path().join("list"), work.path().join("contents"));
    // More entries than an inode and an indirect block have room for.
    let bad: Vec<u64> = (3000..5000).step_by(7).collect();
    let lines: Vec<String> = bad.iter().map(u64::to_string).collect();
    std::fs::write(&list, lines.join("\n")).unwrap();
    std::fs::write(&contents, vec![7; 20_000]).unwrap();
    let list = list.display().to_string();
    for features in ["^has_journal", "^has_journal,^metadata_csum"] {
        let arguments = ["-b", "1024", "-O", features, "-l", &list];
        // Outside the file system, in the bitmaps, and in a file.
        for field in ["block[3] 9999999", "block[3] 70", "block[IND] 9999999", "block[3] FILE"] {
            let image = made(&arguments, 8 << 20, |image| {
                debugfs_write(image, &format!("write {} file", contents.display()));
                let text = debugfs(image, "blocks file");
                let first = text.split_whitespace().next().expect("a block");
                let field = field.replace("FILE", first);
                debugfs_write(image, &format!("set_inode_field <1> {field}"));
            });
            let after = repaired(&image);
            let theirs = work.path().join("theirs");
            let (_, is_repaired) = with_e2fsck(&image, &theirs);
            assert!(is_repaired, "{features} {field}");
            let kept = bad_blocks(&after);
            let is_bad = |block: &&u64| bad.contains(block);
            let by_e2fsck = bad_blocks(&std::fs::read(&theirs).unwrap());
            let (ours, theirs) =
                (kept.iter().filter(is_bad).count(), by_e2fsck.iter().filter(is_bad).count());
            assert!(ours >= theirs && ours >= 18, "{features} {field}: {ours}, e2fsck {theirs}");
            let files = survivors(&image);
            let lost = files.len() - files.files_kept(&survivors(&after)).len();
            assert_eq!(lost, 0, "{features} {field}");
        }
    }
}
