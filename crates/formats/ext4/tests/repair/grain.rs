//! Partly damaged structures keep every entry that can be verified.

use ext4::format::address::{Block, FileBlock};
use ext4::format::extent::{self, ExtentNode, IndexEntry};
use ext4::format::inode::{self, flags};
use testkit::{debugfs, require, scratch};
use vfs::Ino;

use super::against::{carried_out, fault_of_repaired, survivors, with_e2fsck};
use super::bases::{self, Base};
use super::{describe, plan};
use crate::common::image::golden;
use crate::common::layout::{ImageStructures, Structure, StructureKind};

/// Returns the inode of a path.
pub(super) fn ino_of(base: &Base, path: &str) -> u32 {
    let text = testkit::show_bytes(&base.image, |file| debugfs(file, &format!("stat {path}")));
    let number = text.split_whitespace().skip_while(|word| *word != "Inode:").nth(1);
    number.and_then(|number| number.parse().ok()).expect("a number of an inode")
}

/// Repairs an image, asserts that it is sound, and returns it.
#[track_caller]
pub(super) fn repaired(image: &[u8]) -> Vec<u8> {
    let made = plan(image).expect("a plan");
    let after = carried_out(image, &made).expect("it is carried out");
    if let Some(fault) = fault_of_repaired(&made, &after) {
        panic!("{fault}\n{}", describe(&made));
    }
    after
}

/// Repairs an image and asserts that nothing is lost.
#[track_caller]
fn assert_all_survive(base: &Base, image: &[u8]) {
    let before = survivors(&base.image);
    let after = survivors(&repaired(image));
    assert_eq!(before.files_kept(&after).len(), before.len());
}

/// Returns the leaves of an inode's extent tree.
fn leaves(base: &Base, ino: u32) -> Vec<Structure> {
    let is_leaf = |structure: &&Structure| {
        let bytes = &base.image[base.layout.block_range(structure.block)];
        structure.ino == Ino(ino.into()) && ExtentNode::parse(bytes, Some(0)).is_ok()
    };
    let extents =
        base.layout.structures.iter().filter(|s| matches!(s.kind, StructureKind::Extents));
    extents.filter(is_leaf).copied().collect()
}

#[test]
fn a_leaf_of_extents_loses_only_its_wrong_entry() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"), Mount("ext4"));
    for name in ["quota", "group-sums"] {
        let base = bases::one(name);
        let ino = ino_of(&base, "extents");
        let leaves = leaves(&base, ino);
        assert!(leaves.len() > 1, "a tree of several leaves");
        let before = base.layout.inode(&base.image, Ino(ino.into())).blocks_512(1024);
        // The first and a later entry of both leaves, moved far away or over another entry.
        for (leaf, at, to) in [(0, 5, 0xe8fe_1d7f), (0, 0, 3), (1, 10, 0), (1, 3, u32::MAX - 7)] {
            let mut image = base.image.clone();
            let block = base.layout.block_range(leaves[leaf].block);
            let entry = extent::entry_range(at);
            image[block.start + entry.start..][..4].copy_from_slice(&u32::to_le_bytes(to));
            base.layout.seal(&mut image);
            let after = repaired(&image);
            let kept = base.layout.inode(&after, Ino(ino.into())).blocks_512(1024);
            assert!(kept + 2 >= before, "{name} {leaf} {at}: {kept} of {before} units are kept");
        }
    }
}

#[test]
fn an_index_entry_with_a_wrong_start_loses_nothing() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"), Mount("ext4"));
    for name in ["quota", "group-sums"] {
        let base = bases::one(name);
        let slot = base.layout.slot_range(Ino(ino_of(&base, "extents").into()));
        for (at, to) in [(0, 77), (1, 3), (1, u32::MAX)] {
            let mut image = base.image.clone();
            let place = slot.start + 40 + extent::entry_range(at).start;
            image[place..place + 4].copy_from_slice(&u32::to_le_bytes(to));
            base.layout.seal(&mut image);
            assert_all_survive(&base, &image);
        }
    }
}

#[test]
fn a_tree_of_extents_that_is_too_deep_is_read_to_its_end() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"), Mount("ext4"));
    const LEVELS: u16 = 9;
    let base = bases::one("quota");
    let ino = ino_of(&base, "file7");
    let free = testkit::show_bytes(&base.image, |file| debugfs(file, &format!("ffb {LEVELS}")));
    let free: Vec<Block> =
        free.split_whitespace().filter_map(|word| word.parse().ok().map(Block)).collect();
    assert_eq!(free.len(), usize::from(LEVELS));
    let mut image = base.image.clone();
    let slot = base.layout.slot_range(Ino(ino.into()));
    let old = base.layout.inode(&image, Ino(ino.into()));
    assert!(old.has_flag(flags::EXTENTS));
    let seed = ext4::format::checksum::inode_seed(
        base.layout.sb.checksum_seed,
        Ino(ino.into()),
        old.generation(),
    );
    let mut node = old.i_block().to_vec();
    for (depth, place) in free.iter().enumerate() {
        let range = base.layout.block_range(*place);
        let room = extent::capacity(range.len());
        let count =
            ExtentNode::parse(&node[..inode::I_BLOCK_SIZE], None).map_or(1, |node| node.len());
        let block = &mut image[range];
        block.fill(0);
        block[..inode::I_BLOCK_SIZE].copy_from_slice(&node[..inode::I_BLOCK_SIZE]);
        extent::write_header(&mut block[..extent::ENTRY_SIZE], count as u16, room, depth as u16);
        extent::seal(block, seed);
        node = vec![0; inode::I_BLOCK_SIZE];
        extent::write_header(&mut node[..extent::ENTRY_SIZE], 1, 4, depth as u16 + 1);
        let entry = IndexEntry { block: FileBlock(0), leaf: *place }.encode();
        node[extent::entry_range(0)].copy_from_slice(&entry);
    }
    image[slot.start + 40..][..inode::I_BLOCK_SIZE].copy_from_slice(&node);
    base.layout.seal(&mut image);
    assert_all_survive(&base, &image);
}

#[test]
fn attribute_values_without_references_go_to_lost_and_found() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"), Mount("ext4"));
    let base = bases::one("ea-inode");
    let ino = ino_of(&base, "file6");
    let mut image = base.image.clone();
    let slot = base.layout.slot_range(Ino(ino.into()));
    // The magic number of the attributes in the inode, and the number of the attribute block.
    let extra = usize::from(base.layout.inode(&image, Ino(ino.into())).extra_isize());
    image[slot.start + 128 + extra..][..4].fill(0);
    image[slot.start + 0x68..][..4].fill(0);
    base.layout.seal(&mut image);
    let after = repaired(&image);
    let folder = scratch();
    let (_, is_repaired) = with_e2fsck(&image, &folder.path().join("image"));
    assert!(is_repaired);
    let listed = testkit::show_bytes(&after, |file| debugfs(file, "ls -l lost+found"));
    assert!(listed.contains("2999") && listed.contains('#'), "{listed}");
}

#[test]
fn a_file_copied_over_another_inode_keeps_its_blocks() {
    require!(Tool("e2fsck"));
    let work = scratch();
    // The image has less free space than a copy of `many-blocks` needs. The other inodes are lost+found, a directory,
    // a device and an empty file; the names of the latter have the same type as the file.
    let image = golden("ext3");
    let (layout, before) = (ImageStructures::of(&image), survivors(&image));
    let range_of = |ino| layout.slot_range(Ino(ino));
    for (over, path) in [(11, ""), (12, ""), (17, ""), (19, "fifo"), (22, "nothing")] {
        for from in [24, 25] {
            let mut damaged = image.clone();
            damaged.copy_within(range_of(from), range_of(over).start);
            let kept = before.files_kept(&survivors(&repaired(&damaged)));
            let (theirs, _) = with_e2fsck(&damaged, &work.path().join("image"));
            let kept_by_e2fsck = before.files_kept(&theirs);
            assert!(kept.len() >= kept_by_e2fsck.len(), "{from} over {over}: {kept:?}");
            let source = if from == 24 { &b"/sparse"[..] } else { b"/many-blocks" };
            assert!(kept.iter().any(|kept| kept[..] == *source), "{from} over {over} {path}");
        }
    }
}

#[test]
fn a_pointer_beyond_size_and_block_count_costs_nothing() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"), Mount("ext4"));
    const DIRECT: usize = 0x28 + 9 * 4;
    const INDIRECT: usize = 0x28 + 12 * 4;
    let base = bases::one("ext2-map");
    let free = testkit::show_bytes(&base.image, |file| debugfs(file, "ffb 1"));
    let free = free.split_whitespace().find_map(|word| word.parse::<u32>().ok());
    let free = free.expect("a block number");
    let other = ino_of(&base, "file7");
    let taken = base.layout.inode(&base.image, Ino(other.into())).i_block()[..4].to_vec();
    for path in ["file2", "file4", "large/a rather long name of entry number 44"] {
        let slot = base.layout.slot_range(Ino(ino_of(&base, &format!("\"{path}\"")).into()));
        for (at, to) in
            [(DIRECT, &free.to_le_bytes()[..]), (INDIRECT, &free.to_le_bytes()), (DIRECT, &taken)]
        {
            let mut image = base.image.clone();
            image[slot.start + at..][..4].copy_from_slice(to);
            assert_all_survive(&base, &image);
        }
    }
}

#[test]
fn a_damaged_name_does_not_replace_another_one() {
    require!(Tool("e2fsck"), Tool("mke2fs"), Tool("debugfs"), Mount("ext4"));
    let base = bases::one("ext2-map");
    let before = survivors(&base.image);
    let name = |number: usize| format!("a rather long name of entry number {number}");
    let place = |number: usize| {
        let name = name(number);
        let is_it = |at: &usize| base.image[*at..].starts_with(name.as_bytes());
        (0..base.image.len() - name.len()).step_by(4).find(is_it).expect("an entry")
    };
    let (mut cases, mut lost) = (0, 0);
    for number in (100..160).step_by(5).filter(|number| number % 40 != 7) {
        let other = number + 1;
        let (from, to) = (place(number), place(other));
        // In one leaf, nothing shows which of the two names is damaged.
        if from / 1024 == to / 1024 || other % 40 == 7 {
            continue;
        }
        let mut image = base.image.clone();
        image[from..from + name(other).len()].copy_from_slice(name(other).as_bytes());
        cases += 1;
        lost += before.len() - before.files_kept(&survivors(&repaired(&image))).len();
    }
    // At the end of a leaf's range, the other name may seem to belong to the neighbour.
    assert!(cases > 4 && lost <= cases + 1, "{lost} files are lost in {cases} cases");
}
