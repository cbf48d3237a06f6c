//! Damage to one field of the superblock loses no file: the rest of the image determines the field.

use testkit::effort;

use super::tree::ReachableTree;
use super::{apply, describe, plan};
use crate::common::image::{GOLDEN, unpack};

/// Offset of the superblock.
const SUPERBLOCK: usize = 1024;
/// Length of its fields, without the checksum and the list of inodes with errors.
const FIELDS: usize = 0x280;
/// Offset of `s_reserved_gdt_blocks`, the number of blocks reserved for descriptors.
const RESERVED_GDT_BLOCKS: usize = 0xce;

/// Asserts that a repair of an image keeps all files.
fn assert_keeps_all(name: &str, image: &[u8], before: &ReachableTree, what: &str) {
    let made = match plan(image) {
        Ok(made) => made,
        // The value is an unsupported feature.
        Err(vfs::Error::Unsupported(_)) => return,
        Err(error) => panic!("{name}, {what}: {error}"),
    };
    let after = apply(image, &made.steps);
    let now = ReachableTree::of(&after).unwrap_or_else(|error| panic!("{name}, {what}: {error}"));
    let lost = before.lost_in(&now, None, true);
    assert!(
        lost.inodes.is_empty() && lost.names.is_empty(),
        "{name}, {what}: {lost:?}\n{}",
        describe(&made)
    );
}

#[test]
fn the_number_of_reserved_blocks_costs_no_file() {
    for (name, packed) in GOLDEN {
        let image = unpack(packed);
        let before = ReachableTree::of(&image).expect("a sound image");
        for count in [1_u16, 2, 4, 7, 64, 107, 223, 1000, 60_000] {
            let mut damaged = image.clone();
            let at = SUPERBLOCK + RESERVED_GDT_BLOCKS;
            damaged[at..at + 2].copy_from_slice(&count.to_le_bytes());
            assert_keeps_all(name, &damaged, &before, &format!("{count} blocks"));
        }
    }
}

#[test]
fn no_word_of_the_superblock_costs_a_file() {
    for (name, packed) in GOLDEN {
        let image = unpack(packed);
        let before = ReachableTree::of(&image).expect("a sound image");
        for at in (0..FIELDS).step_by(2 * effort(20, 17, 1)) {
            for change in [1_u16, 0x40, 0x8000, 0xffff] {
                let mut damaged = image.clone();
                let at = SUPERBLOCK + at;
                let word = u16::from_le_bytes([damaged[at], damaged[at + 1]]) ^ change;
                damaged[at..at + 2].copy_from_slice(&word.to_le_bytes());
                let what = format!("{word:#x} at {:#x}", at - SUPERBLOCK);
                assert_keeps_all(name, &damaged, &before, &what);
            }
        }
    }
}
