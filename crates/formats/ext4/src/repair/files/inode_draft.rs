//! An inode that is being repaired.

use vfs::{FileType, Ino};

use super::draft::Draft;
use crate::check::checked_image::CheckedImage;
use crate::format::address::Block;
use crate::format::checksum::inode_seed;
use crate::format::inode::{self, GOOD_OLD_INODE_SIZE, Inode, flags};

/// Inode of the bad block list.
pub(super) const BAD_BLOCKS_INO: u32 = 1;

/// An inode with its whole slot.
#[derive(Clone)]
pub(super) struct InodeDraft {
    pub(super) ino: u32,
    /// Fixed fields. They replace those in `slot` when the inode is written.
    pub(super) inode: Inode,
    slot: Vec<u8>,
    /// Byte offset of the slot on the device.
    place: u64,
    /// Seed of the file system's checksums, if there are any.
    seed: Option<u32>,
}

impl InodeDraft {
    pub(super) fn read(checked: &CheckedImage, ino: u32) -> Option<Self> {
        let (slot, place) = (checked.slot(ino)?, checked.slot_place(ino)?);
        let params = checked.params();
        let seed = params.checksums.then_some(params.sb.checksum_seed);
        Some(Self { ino, inode: Inode::from_slot(&slot), slot, place, seed })
    }

    pub(super) fn file_type(&self) -> Option<FileType> {
        self.inode.file_type()
    }

    pub(super) fn has(&self, flags: u32) -> bool {
        self.inode.has_flag(flags)
    }

    /// Returns whether it has a block map. The bad block list has one, but no type.
    pub(super) fn has_map(&self) -> bool {
        let is_mapped = match self.file_type() {
            Some(FileType::Regular | FileType::Directory) => true,
            Some(FileType::Symlink) => self.inode.size() >= inode::I_BLOCK_SIZE as u64,
            None => self.ino == BAD_BLOCKS_INO,
            _ => false,
        };
        is_mapped && !self.has(flags::INLINE_DATA)
    }

    /// Returns the block of its passive translator in a file system of the Hurd, if there is one.
    pub(super) fn translator(&self, checked: &CheckedImage) -> Option<Block> {
        let mut slot = self.slot.clone();
        let fields = self.inode.as_bytes();
        slot[..fields.len()].copy_from_slice(fields);
        checked.translator(self.ino, &slot)
    }

    /// Returns the checksum seed of its blocks, if there are checksums.
    pub(super) fn block_seed(&self) -> Option<u32> {
        let seed = self.seed?;
        Some(inode_seed(seed, Ino(self.ino.into()), self.inode.generation()))
    }

    /// Returns whether its checksum is right, if it has one.
    pub(super) fn is_sealed(&self) -> Option<bool> {
        let (computed, stored) = inode::slot_checksums(self.block_seed()?, &self.slot);
        Some(computed == stored)
    }

    /// Changes bytes of the fixed fields for which [`Inode`] has no setter.
    pub(super) fn patch(&mut self, at: usize, bytes: &[u8]) {
        self.sync();
        self.slot[at..at + bytes.len()].copy_from_slice(bytes);
        self.inode = Inode::from_slot(&self.slot);
    }

    /// Returns all bytes of the slot in the form to write, without a new checksum.
    pub(super) fn bytes(&mut self) -> &[u8] {
        self.sync();
        &self.slot
    }

    fn sync(&mut self) {
        let fields = self.inode.as_bytes();
        self.slot[..fields.len()].copy_from_slice(fields);
    }

    /// Returns the bytes after the fixed fields, which may contain attributes, for editing; `None` if there are none.
    pub(super) fn tail_mut(&mut self) -> Option<&mut [u8]> {
        let extra = usize::from(self.inode.extra_isize());
        self.slot.get_mut(GOOD_OLD_INODE_SIZE + extra..).filter(|_| extra > 0)
    }

    /// Returns the bytes after the fixed fields; `None` if there are none.
    pub(super) fn tail(&self) -> Option<&[u8]> {
        let extra = usize::from(self.inode.extra_isize());
        self.slot.get(GOOD_OLD_INODE_SIZE + extra..).filter(|_| extra > 0)
    }

    /// Clears the whole slot, which makes the inode free.
    pub(super) fn clear(&mut self) {
        self.slot.fill(0);
        self.inode = Inode::from_slot(&self.slot);
    }

    /// Adds the slot to the draft.
    pub(super) fn store(mut self, draft: &mut Draft) {
        self.sync();
        let is_empty = self.slot.iter().all(|&byte| byte == 0);
        if let Some(seed) = self.block_seed().filter(|_| !is_empty) {
            inode::seal_slot(seed, &mut self.slot);
        }
        draft.write(self.place, self.slot);
    }
}
