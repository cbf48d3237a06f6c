//! An inode that is being mended.

use vfs::{FileType, Ino};

use super::draft::Draft;
use crate::check::scene::Scene;
use crate::format::checksum::inode_seed;
use crate::format::inode::{self, GOOD_OLD_INODE_SIZE, Inode, flags};

/// An inode, with all of its slot.
#[derive(Clone)]
pub(super) struct Patient {
    pub(super) ino: u32,
    /// The fixed fields, which count before those in the slot.
    pub(super) inode: Inode,
    slot: Vec<u8>,
    /// Byte of the device at which the slot starts.
    place: u64,
    /// Seed of the file system's checksums, where there are any.
    seed: Option<u32>,
}

impl Patient {
    pub(super) fn read(scene: &Scene, ino: u32) -> Option<Self> {
        let (slot, place) = (scene.slot(ino)?, scene.slot_place(ino)?);
        let params = scene.params();
        let seed = params.checksums.then_some(params.sb.checksum_seed);
        Some(Self { ino, inode: Inode::from_slot(&slot), slot, place, seed })
    }

    pub(super) fn file_type(&self) -> Option<FileType> {
        self.inode.file_type()
    }

    pub(super) fn has(&self, flags: u32) -> bool {
        self.inode.has_flag(flags)
    }

    /// Whether its blocks are named by a map.
    pub(super) fn has_map(&self) -> bool {
        let is_mapped = match self.file_type() {
            Some(FileType::Regular | FileType::Directory) => true,
            Some(FileType::Symlink) => self.inode.size() >= inode::I_BLOCK_SIZE as u64,
            _ => false,
        };
        is_mapped && !self.has(flags::INLINE_DATA)
    }

    /// Seed of the checksums of its blocks, where there are any.
    pub(super) fn block_seed(&self) -> Option<u32> {
        let seed = self.seed?;
        Some(inode_seed(seed, Ino(self.ino.into()), self.inode.generation()))
    }

    /// Whether its checksum is right, where there is one.
    pub(super) fn is_sealed(&self) -> Option<bool> {
        let (computed, stored) = inode::slot_checksums(self.block_seed()?, &self.slot);
        Some(computed == stored)
    }

    /// Changes bytes of the fixed fields that [`Inode`] has no setter for.
    pub(super) fn patch(&mut self, at: usize, bytes: &[u8]) {
        self.sync();
        self.slot[at..at + bytes.len()].copy_from_slice(bytes);
        self.inode = Inode::from_slot(&self.slot);
    }

    /// All bytes of the slot, as they would be written but for the checksum.
    pub(super) fn bytes(&mut self) -> &[u8] {
        self.sync();
        &self.slot
    }

    fn sync(&mut self) {
        let fields = self.inode.as_bytes();
        self.slot[..fields.len()].copy_from_slice(fields);
    }

    /// The bytes behind the fixed fields, where attributes are; `None` if there are none.
    pub(super) fn tail_mut(&mut self) -> Option<&mut [u8]> {
        let extra = usize::from(self.inode.extra_isize());
        self.slot.get_mut(GOOD_OLD_INODE_SIZE + extra..).filter(|_| extra > 0)
    }

    /// The same, to read.
    pub(super) fn tail(&self) -> Option<&[u8]> {
        let extra = usize::from(self.inode.extra_isize());
        self.slot.get(GOOD_OLD_INODE_SIZE + extra..).filter(|_| extra > 0)
    }

    /// Makes it free: nothing of it is left.
    pub(super) fn clear(&mut self) {
        self.slot.fill(0);
        self.inode = Inode::from_slot(&self.slot);
    }

    /// Notes the slot to be written.
    pub(super) fn store(mut self, draft: &mut Draft) {
        self.sync();
        let is_empty = self.slot.iter().all(|&byte| byte == 0);
        if let Some(seed) = self.block_seed().filter(|_| !is_empty) {
            inode::seal_slot(seed, &mut self.slot);
        }
        draft.write(self.place, self.slot);
    }
}
