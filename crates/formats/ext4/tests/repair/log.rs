//! A repair that is written through the image's own journal is applied completely or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use ext4::format::features::Incompat;
use ext4::format::superblock::Superblock;
use ext4::log::JournalMap;
use operations::repair::{PAGE_BYTES, Staging, write_through_log};
use testkit::{Mke2fs, require, scratch};

use super::tree::ReachableTree;
use super::{apply, plan};
use crate::check::victim::{judge, settled};
use crate::common::image::device;
use crate::journal::support::{Config, JournalImage, superblock};
use vfs::check::Silent;

fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).expect("memory");
    bytes
}

fn calls_for_recovery(image: &[u8]) -> bool {
    let bytes = image[1024..2048].try_into().expect("its size");
    let sb = Superblock::parse(bytes, image.len() as u64).expect("a superblock");
    sb.features.incompat(Incompat::RECOVER)
}

/// Returns an image with a journal, and a copy with a wrong count in the superblock.
fn images() -> (Vec<u8>, Vec<u8>) {
    let work = scratch();
    let place = work.path().join("image");
    Mke2fs::new("ext4").block_size(1024).create(&place, 24 << 20);
    settled(&place);
    let image = std::fs::read(&place).expect("an image");
    let mut damaged = image.clone();
    crate::common::layout::edit_superblock(&mut damaged, |raw| raw.free_inodes_count = 3.into());
    (image, damaged)
}

#[test]
fn steps_go_through_the_journal() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let (_, damaged) = images();
    let steps = plan(&damaged).expect("a plan").steps;
    assert!(!steps.is_empty());
    let memory = device(&damaged);
    let writer = ext4::repair::open_log(memory.clone()).expect("memory").expect("a journal");
    assert!(calls_for_recovery(&bytes_of(&memory)));
    write_through_log(memory.clone(), writer, &steps, &mut |_, _| true).expect("memory");
    let after = bytes_of(&memory);
    assert!(!calls_for_recovery(&after));
    assert_eq!(judge(&after), None);
    let again = plan(&after).expect("a plan");
    assert!(again.steps.is_empty() && again.findings.is_empty());
    assert!(ReachableTree::of(&after).is_ok() && judge(&apply(&damaged, &steps)).is_none());
}

#[test]
fn written_steps_are_replayed_after_a_crash() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let (image, _) = images();
    let memory = device(&image);
    let mut writer = ext4::repair::open_log(memory.clone()).expect("memory").expect("a journal");
    // The last blocks are free.
    let size = writer.block_size();
    let last = (image.len() / size - 1) as u64;
    let blocks: BTreeMap<u64, Vec<u8>> =
        (last - 20..last).map(|block| (block, vec![7; size])).collect();
    writer.write(&blocks).expect("memory");
    let crashed = bytes_of(&memory);
    drop(writer);
    assert!(calls_for_recovery(&crashed));
    let recovered = device(&crashed);
    let report = ext4::log::recover(&*recovered).expect("a sound journal");
    assert_eq!((report.transactions, report.blocks_replayed), (1, 20));
    let bytes = bytes_of(&recovered);
    let start = (last - 20) as usize * size;
    assert!(bytes[start..start + 20 * size].iter().all(|&byte| byte == 7));
    assert!(!calls_for_recovery(&bytes));
}

#[test]
fn only_a_journal_that_can_be_trusted_is_opened() {
    let none = |image: &[u8]| {
        let memory = device(image);
        assert!(ext4::repair::open_log(memory.clone()).expect("memory").is_none());
        assert!(bytes_of(&memory) == image, "nothing is written");
    };
    none(&crate::common::image::golden("ext4-plain"));
    none(&[0; 100_000]);
    let staging = Arc::new(Staging::new(device(&[0; 5 * PAGE_BYTES as usize])));
    let repairer = super::repairer();
    assert!(
        operations::repair::make_plan(&repairer, &staging, &Silent).is_err(),
        "there is nothing to repair"
    );
}

/// Creates an image with three transactions in its log. The first one writes patterns 0, 1 and 2 to three blocks of a
/// file. The second one writes pattern 10 to the first of these blocks, and the third one pattern 11 to a fourth block.
/// In the journal the transactions take the blocks 1 to 5, 6 to 8 and 9 to 11.
fn with_transactions() -> (JournalImage, Vec<u8>, JournalMap) {
    let config = Config { fs_type: "ext4", block_size: 1024, features: "" };
    let image = JournalImage::new(&config);
    let journal = image.journal();
    let blocks = &image.blocks;
    let first: Vec<_> = (0..3).map(|at| (blocks[at], image.pattern(at as u64))).collect();
    image.append(&journal, 1, &[], &first);
    image.append(&journal, 2, &[], &[(blocks[0], image.pattern(10))]);
    image.append(&journal, 3, &[], &[(blocks[3], image.pattern(11))]);
    let bytes = std::fs::read(&image.path).expect("an image");
    let memory = device(&bytes);
    let map = JournalMap::read(&*memory, &superblock(&*memory)).expect("sound").expect("a journal");
    (image, bytes, map)
}

/// Repairs an image, and returns the pattern numbers in its file's blocks, if they have one.
fn repaired(image: &JournalImage, damaged: &[u8]) -> Vec<Option<u64>> {
    let plan = plan(damaged).expect("a plan");
    assert!(plan.left.is_empty(), "{}", super::describe(&plan));
    let after = apply(damaged, &plan.steps);
    assert_eq!(judge(&after), None, "{}", super::describe(&plan));
    let block = |number: u64| after[number as usize * 1024..][..1024].to_vec();
    let pattern = |number: u64| {
        [0, 1, 2, 10, 11].into_iter().find(|pattern| block(number) == image.pattern(*pattern))
    };
    image.blocks[..4].iter().map(|number| pattern(*number)).collect()
}

#[test]
fn a_damaged_log_is_replayed_without_its_damaged_images() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let (image, bytes, map) = with_transactions();
    let all = [Some(10), Some(1), Some(2), Some(11)];
    assert_eq!(repaired(&image, &bytes), all);
    let damage = |block: u32, len: usize| {
        let mut damaged = bytes.clone();
        let at = map.place_of(block).expect("a block of the journal").0 as usize;
        damaged[at..at + len].fill(0xa5);
        damaged
    };
    // Kernels and e2fsck do the same: a logged block with a wrong checksum is skipped, all others are written.
    let others = [Some(0), Some(1), Some(2), Some(11)];
    assert_eq!(repaired(&image, &damage(7, 10)), others, "an image of the second transaction");
    assert_eq!(repaired(&image, &damage(2, 10)), all, "an image that a later one replaces");
    let first = [Some(0), Some(1), Some(2), None];
    assert_eq!(repaired(&image, &damage(6, 1024)), first, "the start of the second transaction");
    assert_eq!(repaired(&image, &damage(0, 1024)), [None; 4], "the journal's superblock");
}

#[test]
fn a_journal_is_found_by_the_copy_of_its_map() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let (image, bytes, _) = with_transactions();
    let layout = crate::common::layout::ImageStructures::of(&bytes);
    let slot = layout.slot_range(vfs::Ino(8));
    let mut damaged = bytes.clone();
    damaged[slot.clone()].fill(0);
    assert_eq!(repaired(&image, &damaged), [Some(10), Some(1), Some(2), Some(11)]);
    // The backups of the superblock have the copy, too.
    crate::common::layout::edit_superblock(&mut damaged, |raw| raw.jnl_backup_type = 0);
    assert_eq!(repaired(&image, &damaged), [Some(10), Some(1), Some(2), Some(11)]);
    // Without a copy, the location of the journal is unknown: the repair creates a new one.
    for group in layout.geometry.groups().skip(1) {
        let Some(block) = layout.geometry.superblock_of(group) else { continue };
        damaged[layout.block_range(block)].fill(0);
    }
    assert_eq!(repaired(&image, &damaged), [None; 4]);
}
