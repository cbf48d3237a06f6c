//! Entries and inodes that e2fsck keeps: damage to one field, or to everything that does not matter, costs no file.

use std::ops::Range;

use ext4::format::dirent;
use ext4::format::features::Incompat;
use ext4::format::inode::flags;
use testkit::{Survivors, effort, require};
use vfs::Ino;

use super::against::survivors;
use super::bases::{self, Base};
use super::grain::{ino_of, repaired};
use crate::common::image::golden;
use crate::common::layout::{StructureKind, edit_superblock, superblock};

/// Offset of `i_mode` in an inode.
const MODE: usize = 0;
/// Offset of `i_links_count`.
const LINKS: usize = 0x1a;
/// Offset of the high half of `i_flags`.
const FLAGS_HIGH: usize = 0x22;
/// Offset of `l_i_version`, for the Hurd `h_i_translator`.
const TRANSLATOR: usize = 0x24;
/// Offset of the length in a directory record.
const REC_LEN: usize = 4;
/// Offset of the length of the name in a directory record.
const NAME_LEN: usize = 6;

/// Returns the byte ranges of the directory blocks of an inode.
fn leaves(base: &Base, ino: u32) -> Vec<Range<usize>> {
    let own = base.layout.structures.iter().filter(|structure| structure.ino.0 == ino.into());
    let leaves = own.filter(|structure| structure.kind == StructureKind::Leaf);
    leaves.map(|structure| base.layout.block_range(structure.block)).collect()
}

/// Changes an image, makes its checksums valid, repairs it, and asserts that nothing is lost.
#[track_caller]
fn assert_costs_nothing(
    base: &Base,
    before: &Survivors,
    what: &str,
    edit: &dyn Fn(&mut [u8]),
) -> Vec<u8> {
    let mut image = base.image.clone();
    edit(&mut image);
    base.layout.seal(&mut image);
    let after = repaired(&image);
    let now = survivors(&after);
    let kept = before.files_kept(&now);
    assert_eq!(kept.len(), before.len(), "{}, {what}", base.name);
    after
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

#[test]
fn a_wrong_record_length_loses_no_entry() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"), Mount("ext4"));
    let base = bases::one("bigalloc");
    let before = survivors(&base.image);
    let large = ino_of(&base, "large");
    for block in
        [leaves(&base, 2), leaves(&base, large)].into_iter().flatten().step_by(effort(11, 5, 1))
    {
        let bytes = base.image[block.clone()].to_vec();
        let records: Vec<_> = dirent::entries(&bytes).collect();
        let last = records.len() - 1;
        for at in [0, 1, last / 2, last] {
            let record = &records[at];
            let is_last = at == last;
            // Inside of a later record, not a multiple of 4, too short, past the end of the block.
            let inside = record.rec_len + if is_last { 0x400 } else { records[at + 1].rec_len + 8 };
            for len in [inside, record.rec_len + 1, 4, 0xff00] {
                let place = block.start + record.offset + REC_LEN;
                let what = format!("{len} instead of {} at {}", record.rec_len, record.offset);
                assert_costs_nothing(&base, &before, &what, &|image| {
                    put(image, place, &(len as u16).to_le_bytes());
                });
            }
        }
    }
}

#[test]
fn a_name_that_is_too_long_loses_no_entry() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"), Mount("ext4"));
    let base = bases::one("bigalloc");
    let before = survivors(&base.image);
    for block in leaves(&base, 2) {
        let bytes = base.image[block.clone()].to_vec();
        let names = dirent::entries(&bytes).filter(|record| !matches!(record.name, b"." | b".."));
        for record in names.filter(|record| record.rec_len < 40) {
            for len in [record.rec_len as u8 - 7, 0xff] {
                let what = format!("a name of {len} bytes at {}", record.offset);
                assert_costs_nothing(&base, &before, &what, &|image| {
                    put(image, block.start + record.offset + NAME_LEN, &[len]);
                });
            }
        }
    }
}

#[test]
fn a_wrong_record_length_in_an_inode_loses_no_entry() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"), Mount("ext4"));
    let base = bases::one("inline");
    let before = survivors(&base.image);
    let slot = base.layout.slot_range(Ino(ino_of(&base, "deep/level0").into()));
    // After the target of "..".
    let start = slot.start + 40 + 4;
    let bytes = base.image[start..start + 56].to_vec();
    for record in dirent::entries(&bytes) {
        assert_costs_nothing(&base, &before, "a record", &|image| {
            put(image, start + record.offset + REC_LEN, &[0xff]);
        });
    }
}

#[test]
fn a_directory_of_another_type_stays_a_directory() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"), Mount("ext4"));
    for name in ["large-blocks", "ext2-map", "inline"] {
        let base = bases::one(name);
        let before = survivors(&base.image);
        // "large" of the first one has an attribute block. The second one of the last is in its inode.
        let second = if name == "inline" { "deep/level0" } else { "deep" };
        // e2fsck also takes a symbolic link with the inline data of a directory for a sound one.
        let link = (name != "inline").then_some(0xa1ed);
        for path in ["large", second] {
            let slot = base.layout.slot_range(Ino(ino_of(&base, path).into()));
            for mode in [0_u16, 0x1af3, 0x21ed, 0x61ed, 0xc1ed].into_iter().chain(link) {
                let what = format!("{path} of mode {mode:#x}");
                assert_costs_nothing(&base, &before, &what, &|image| {
                    put(image, slot.start + MODE, &mode.to_le_bytes());
                });
            }
        }
    }
}

#[test]
fn a_fifo_with_random_fields_stays_a_fifo() {
    require!(Tool("e2fsck"), Tool("debugfs"));
    for name in ["inline", "ext4"] {
        let base = Base::new("golden", golden(name));
        let before = survivors(&base.image);
        let slot = base.layout.slot_range(Ino(ino_of(&base, "fifo").into()));
        for seed in 0..effort(2, 4, 30) {
            assert_costs_nothing(&base, &before, &format!("seed {seed}"), &|image| {
                let mut random = fastrand::Rng::with_seed(seed);
                image[slot.clone()].fill_with(|| random.u8(..));
                put(image, slot.start + MODE, &0x11a4_u16.to_le_bytes());
                put(image, slot.start + LINKS, &1_u16.to_le_bytes());
            });
        }
    }
}

#[test]
fn an_empty_file_that_seems_to_be_a_value_keeps_its_name() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"), Mount("ext4"));
    let base = bases::one("ea-inode");
    let before = survivors(&base.image);
    let slot = base.layout.slot_range(Ino(ino_of(&base, "file0").into()));
    assert_costs_nothing(&base, &before, "flags", &|image| {
        put(image, slot.start + FLAGS_HIGH, &[0xff; 2]);
    });
}

#[test]
fn another_system_as_creator_costs_nothing() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"), Mount("ext4"));
    for name in ["inline", "ext2-map", "large-blocks"] {
        let base = bases::one(name);
        let before = survivors(&base.image);
        let owner = base.layout.inode(&base.image, Ino(ino_of(&base, "file6").into()));
        // The first pointer, or the start of the first extent.
        let at = if owner.has_flag(flags::EXTENTS) { 20 } else { 0 };
        let of_file = u32::from_le_bytes(*owner.i_block()[at..].first_chunk().unwrap());
        let inodes = ["deep", "file3", "large"].map(|path| ino_of(&base, path));
        let slots = inodes.map(|ino| base.layout.slot_range(Ino(ino.into())));
        // Blocks of the file system, of a file, and outside.
        for block in [2, of_file, u32::MAX] {
            assert_costs_nothing(&base, &before, &format!("block {block}"), &|image| {
                edit_superblock(image, |raw| raw.creator_os = 1.into());
                slots.iter().for_each(|slot| {
                    put(image, slot.start + TRANSLATOR, &block.to_le_bytes());
                });
            });
        }
    }
}

#[test]
fn a_shared_translator_is_copied() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"), Mount("ext4"));
    const TEXT: &[u8] = b"\x0c\0/hurd/ftpfs\0";
    let mut base = bases::one("ext2-map");
    let file = base.layout.inode(&base.image, Ino(ino_of(&base, "file6").into()));
    let block = u32::from_le_bytes(*file.i_block().first_chunk().unwrap());
    put(&mut base.image, block as usize * 1024, TEXT);
    edit_superblock(&mut base.image, |raw| raw.creator_os = 1.into());
    let before = survivors(&base.image);
    let slot = base.layout.slot_range(Ino(ino_of(&base, "file3").into()));
    let place = slot.start + TRANSLATOR;
    let after = assert_costs_nothing(&base, &before, "a translator", &|image| {
        put(image, place, &block.to_le_bytes());
    });
    let copy = u32::from_le_bytes(*after[place..].first_chunk().unwrap());
    assert!(copy != 0 && copy != block, "{copy}");
    assert!(after[copy as usize * 1024..].starts_with(TEXT));
}

#[test]
fn a_lost_feature_costs_nothing() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"), Mount("ext4"));
    let base = bases::one("group-sums");
    let before = survivors(&base.image);
    let features = base.layout.sb.features.incompat;
    for lost in [features, Incompat::FLEX_BG, Incompat::EXTENTS, Incompat::FILETYPE] {
        let after = assert_costs_nothing(&base, &before, &format!("{lost:?}"), &|image| {
            edit_superblock(image, |raw| {
                let mut now = raw.features();
                now.incompat.remove(lost);
                raw.set_features(&now);
            });
        });
        let now = superblock(&after).expect("a superblock").features.incompat;
        assert!(now.contains(Incompat::EXTENTS) && now.contains(Incompat::FLEX_BG), "{now:?}");
    }
}

#[test]
fn a_number_of_groups_that_e2fsck_refuses_is_repaired() {
    require!(Tool("e2fsck"));
    for (name, usual) in [("ext3", 0), ("ext4", 4)] {
        let mut image = golden(name);
        edit_superblock(&mut image, |raw| raw.log_groups_per_flex = 32);
        let after = repaired(&image);
        let now = superblock(&after).expect("a superblock").raw.log_groups_per_flex;
        assert_eq!(now, usual, "{name}");
    }
}
