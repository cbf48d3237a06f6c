//! Impossible orphans: the error names them, and nothing is written.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use ext4::format::address::Block;
use ext4::format::checksum::inode_seed;
use ext4::format::extent::{self, Extent, ExtentNode};
use ext4::format::features::RoCompat;
use ext4::format::inode::{self, Inode};
use ext4::format::orphan;
use ext4::format::superblock::RawSuperblock;
use ext4::{Ext4, OpenOptions};
use testkit::require;
use vfs::{Error, Ino};

use super::common::layout::{ImageStructures, edit_superblock};
use super::{KINDS, crashed};

/// Inode of the orphan file that mke2fs creates in an empty file system.
const ORPHAN_FILE: Ino = Ino(12);

/// An image that was not closed, to be damaged.
struct Victim {
    image: Vec<u8>,
    layout: ImageStructures,
}

impl Victim {
    /// Creates an image with five orphans, stored as in entry `kind` of [`KINDS`]. Its journal needs no replay.
    fn new(kind: usize) -> Self {
        let crashed = crashed(KINDS[kind].1, 5);
        crashed.replay();
        let image = std::fs::read(&crashed.path).unwrap();
        let mut victim = Self { layout: ImageStructures::of(&image), image };
        assert!(victim.open().is_ok());
        // The image must contain orphans.
        assert!(victim.superblock(|raw| raw.last_orphan.get()) != 0 || victim.slot_of_any().1 != 0);
        victim
    }

    fn open(&self) -> Result<Ext4, Error> {
        let device = Arc::new(MemoryDevice::from_bytes(&self.image));
        Ext4::open_writable(device, &OpenOptions::default())
    }

    fn superblock<R>(&mut self, edit: impl FnOnce(&mut RawSuperblock) -> R) -> R {
        let mut outcome = None;
        edit_superblock(&mut self.image, |raw| outcome = Some(edit(raw)));
        outcome.unwrap()
    }

    fn inode(&mut self, ino: Ino, edit: impl FnOnce(&mut Inode)) {
        let range = self.layout.slot_range(ino);
        let slot = &mut self.image[range];
        let mut inode = Inode::from_slot(slot);
        edit(&mut inode);
        let bytes = inode.as_bytes();
        slot[..bytes.len()].copy_from_slice(bytes);
        inode::seal_slot(inode_seed(self.layout.sb.checksum_seed, ino, inode.generation()), slot);
    }

    fn orphan_seed(&self) -> u32 {
        let generation = self.layout.inode(&self.image, ORPHAN_FILE).generation();
        inode_seed(self.layout.sb.checksum_seed, ORPHAN_FILE, generation)
    }

    /// Returns the blocks of the orphan file.
    fn orphan_blocks(&self) -> Vec<Block> {
        let inode = self.layout.inode(&self.image, ORPHAN_FILE);
        let extent = ExtentNode::parse(inode.i_block(), None).unwrap().extent(0);
        (0..u64::from(extent.len)).map(|step| extent.start.plus(step)).collect()
    }

    /// Returns the first slot in use: its offset in the image, and its inode.
    fn slot_of_any(&self) -> (usize, u32) {
        for place in self.orphan_blocks() {
            let range = self.layout.block_range(place);
            let words = self.image[range.clone()].chunks_exact(4).enumerate();
            let slots = orphan::slots_per_block(range.len());
            for (at, word) in words.take(slots) {
                let number = u32::from_le_bytes(word.try_into().unwrap());
                if number != 0 {
                    return (range.start + at * 4, number);
                }
            }
        }
        panic!("no slot is in use");
    }

    /// Stores `ino` in the slot at an offset of the image.
    fn fill_slot(&mut self, at: usize, ino: u32) {
        self.image[at..at + 4].copy_from_slice(&ino.to_le_bytes());
        let seed = self.orphan_seed();
        let place = Block(at as u64 >> self.layout.geometry.block_size_log);
        let range = self.layout.block_range(place);
        orphan::seal(&mut self.image[range], place, Some(seed));
    }

    /// Clears an inode's bit in the bitmap, without other changes.
    fn clear_bitmap(&mut self, ino: Ino) {
        let (group, index) = self.layout.geometry.place_of(ino).unwrap();
        let bitmap = self.layout.groups[group.0 as usize].inode_bitmap;
        let start = self.layout.block_range(bitmap).start;
        self.image[start + index as usize / 8] &= !(1 << (index % 8));
        self.layout.seal(&mut self.image);
    }

    /// Asserts that opening fails with a message that contains `words`, and writes nothing.
    #[track_caller]
    fn refused(&self, words: &[&str]) {
        let device = Arc::new(MemoryDevice::from_bytes(&self.image));
        let options = OpenOptions::default();
        let error = match Ext4::open_writable(device.clone(), &options) {
            Err(error @ Error::Corrupt(_)) => error.to_string(),
            Err(other) => panic!("not said to be damaged: {other}"),
            Ok(_) => panic!("not refused: {words:?}"),
        };
        for word in words {
            assert!(error.contains(word), "{error} lacks {word}");
        }
        let mut after = vec![0; self.image.len()];
        device.read_at(0, &mut after).unwrap();
        assert!(after == self.image, "it was written");
    }
}

#[test]
fn an_invalid_orphan_file() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let mut victim = Victim::new(0);
    let first = victim.orphan_blocks()[0];
    let start = victim.layout.block_range(first).start;
    let block_size = victim.layout.geometry.block_size() as usize;
    let sound = victim.image.clone();

    victim.image[start + block_size - 8] ^= 1;
    victim.refused(&["orphan file", "magic number", &first.to_string()]);
    victim.image.clone_from(&sound);
    victim.image[start + block_size - 1] ^= 1;
    victim.refused(&["orphan file", "wrong checksum", &first.to_string()]);
    victim.image.clone_from(&sound);
    // A valid block at a wrong position.
    let range = victim.layout.block_range(first);
    let moved = victim.image[range].to_vec();
    let second = victim.layout.block_range(victim.orphan_blocks()[1]);
    victim.image[second].copy_from_slice(&moved);
    victim.refused(&["orphan file", "wrong checksum"]);

    victim.image.clone_from(&sound);
    victim.inode(ORPHAN_FILE, |inode| shorten_extent(inode, 1));
    victim.refused(&["orphan file", "inode 12", "hole"]);
    victim.image.clone_from(&sound);
    victim.inode(ORPHAN_FILE, |inode| inode.set_size(513 * block_size as u64));
    victim.refused(&["orphan file", "512 blocks"]);
    victim.image.clone_from(&sound);
    victim.inode(ORPHAN_FILE, |inode| inode.set_size(block_size as u64 + 1));
    victim.refused(&["orphan file", "whole blocks"]);
    victim.image.clone_from(&sound);
    victim.inode(ORPHAN_FILE, |inode| inode.set_mode(0o040_700));
    victim.refused(&["orphan file", "whole blocks"]);
    for number in [0, 4000, 4_000_000] {
        victim.image.clone_from(&sound);
        victim.superblock(|raw| raw.orphan_file_inum = number.into());
        victim.refused(&["superblock", "the orphan file is not in use"]);
    }
}

/// Shortens the only extent of a file.
fn shorten_extent(inode: &mut Inode, by: u32) {
    let extent: Extent = ExtentNode::parse(inode.i_block(), None).unwrap().extent(0);
    let shorter = Extent { len: extent.len - by, ..extent };
    inode.i_block_mut()[extent::ENTRY_SIZE..][..extent::ENTRY_SIZE]
        .copy_from_slice(&shorter.encode());
}

#[test]
fn slots_with_invalid_orphans() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let mut victim = Victim::new(0);
    let sound = victim.image.clone();
    let (at, ino) = victim.slot_of_any();
    for (number, words) in [
        (4_000_000, ["an inode that cannot be an orphan", "4000000"]),
        (u32::MAX, ["an inode that cannot be an orphan", "4294967295"]),
        (2, ["an inode that cannot be an orphan", "inode 2"]),
        (12, ["it lists itself", "inode 12"]),
        (4000, ["an inode that is not in use", "inode 4000"]),
    ] {
        victim.image.clone_from(&sound);
        victim.fill_slot(at, number);
        victim.refused(&["orphan file", words[0], words[1]]);
    }
    // A second slot with the same inode.
    victim.image.clone_from(&sound);
    victim.fill_slot(at + 200 * 4, ino);
    victim.refused(&["orphan file", "already listed", &format!("inode {ino}")]);
    victim.image.clone_from(&sound);
    victim.clear_bitmap(Ino(ino.into()));
    victim.refused(&["orphan file", "not in use", &format!("inode {ino}")]);
    victim.image.clone_from(&sound);
    victim.inode(Ino(ino.into()), |inode| {
        inode.set_mode(0o010_600);
        inode.set_links_count(1);
    });
    victim.refused(&["orphan file", "nothing to truncate", &format!("inode {ino}")]);
    victim.image.clone_from(&sound);
    victim.superblock(|raw| raw.last_orphan = ino.into());
    victim.refused(&["orphan file", "already listed", &format!("inode {ino}")]);
    // Slots are used even if the feature `orphan_present` is missing.
    victim.image.clone_from(&sound);
    victim.superblock(|raw| {
        let mut features = raw.features();
        features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
        raw.set_features(&features);
    });
    assert_eq!(victim.open().unwrap().cleaned_orphans().freed, 5);
}

#[test]
fn lists_that_lead_nowhere() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let mut victim = Victim::new(1);
    let sound = victim.image.clone();
    let head = victim.superblock(|raw| raw.last_orphan.get());
    let second = victim.layout.inode(&victim.image, Ino(head.into())).dtime();
    assert_ne!(second, 0);
    for (number, words) in [
        (head, ["orphan list", "already listed"]),
        (second, ["orphan list", "already listed"]),
        (4_000_000, ["orphan list", "cannot be an orphan"]),
        (u32::MAX, ["orphan list", "cannot be an orphan"]),
        (3, ["orphan list", "cannot be an orphan"]),
        (4000, ["orphan list", "not in use"]),
    ] {
        victim.image.clone_from(&sound);
        victim.inode(Ino(second.into()), |inode| inode.set_dtime(number));
        victim.refused(&words);
        if number != head && number != second {
            victim.image.clone_from(&sound);
            victim.superblock(|raw| raw.last_orphan = number.into());
            victim.refused(&words);
        }
    }
    victim.image.clone_from(&sound);
    victim.clear_bitmap(Ino(second.into()));
    victim.refused(&["orphan list", "not in use", &format!("inode {second}")]);
    victim.image.clone_from(&sound);
    let slot = victim.layout.slot_range(Ino(second.into()));
    victim.image[slot.start + 4] ^= 1;
    victim.refused(&["damaged inode", "wrong checksum", &format!("inode {second}")]);
}
