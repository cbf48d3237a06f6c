//! Shared state of all parts of a check: the device, the superblock, and results so far.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use disk::BlockDevice;
use engine::Corruption;
use parking_lot::Mutex;
use vfs::check::{BitSet, Code, Finding, Observer, Waiting};
use vfs::{FileType, Ino};

use super::claims::Claims;
use super::codes::IO;
use super::groups::GroupFacts;
use super::inode::RESIZE_INO;
use super::inodes::Inodes;
use super::references::References;
use super::tally::Tally;
use crate::alloc::system::SystemZone;
use crate::format::address::{Block, Group};
use crate::format::checksum::inode_seed;
use crate::format::encryption::Policy;
use crate::format::features::Incompat;
use crate::format::geometry::Geometry;
use crate::format::inode::{I_BLOCK_SIZE, Inode, flags};
use crate::params::Params;

/// A running check.
pub(super) struct Context<'c> {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) observer: &'c dyn Observer,
    pub(super) threads: NonZero<usize>,
    pub(super) params: Params,
    pub(super) groups: Vec<GroupFacts>,
    /// Blocks of the file system's own structures.
    pub(super) system: SystemZone,
    pub(super) claims: Claims,
    pub(super) inodes: Inodes,
    /// Inodes on the orphan list or in the orphan file.
    pub(super) orphans: BitSet,
    pub(super) references: References,
    pub(super) tally: Tally,
    /// Encryption policies of inodes.
    pub(super) policies: Mutex<HashMap<u32, Policy>>,
    waiting: Waiting,
    is_incomplete: AtomicBool,
    /// True if the journal is not examined (`norecovery`).
    pub(super) ignores_journal: bool,
    /// True if a file needs the feature `large_file`.
    pub(super) has_large_file: AtomicBool,
    /// True if an inode has an attribute block.
    pub(super) has_attribute_block: AtomicBool,
    pub(super) inodes_used: AtomicU64,
    pub(super) directories: AtomicU64,
}

/// An inode that is being checked.
#[derive(Clone, Copy)]
pub(super) struct InodeUnderCheck {
    pub(super) ino: u32,
    pub(super) inode: Inode,
    /// Checksum seed of its blocks, if there are checksums.
    pub(super) seed: Option<u32>,
    pub(super) is_orphan: bool,
}

impl<'c> Context<'c> {
    pub(super) fn new(
        device: Arc<dyn BlockDevice>,
        observer: &'c dyn Observer,
        threads: NonZero<usize>,
        params: Params,
    ) -> Self {
        let geometry = params.geometry;
        Self {
            device,
            observer,
            threads,
            groups: Vec::new(),
            system: SystemZone::of(&geometry, |_| None),
            claims: Claims::new(&geometry, &params.sb.features),
            inodes: Inodes::new(&geometry),
            orphans: BitSet::new(u64::from(geometry.inodes_count) + 1),
            references: References::default(),
            tally: Tally::new(&params),
            policies: Mutex::default(),
            waiting: Waiting::default(),
            is_incomplete: AtomicBool::new(false),
            ignores_journal: false,
            has_large_file: AtomicBool::new(false),
            has_attribute_block: AtomicBool::new(false),
            inodes_used: AtomicU64::new(0),
            directories: AtomicU64::new(0),
            params,
        }
    }

    pub(super) fn geometry(&self) -> &Geometry {
        &self.params.geometry
    }

    pub(super) fn block_size(&self) -> usize {
        self.params.block_size()
    }

    /// Reports a finding. A finding about an inode is held back until its path is known.
    pub(super) fn tell(&self, finding: Finding) {
        self.waiting.hold(finding, self.observer);
    }

    /// Reports damage of an inode that a verifier found.
    pub(super) fn tell_damage(&self, ino: u32, code: &'static Code, damage: &Corruption) {
        self.tell(Finding::of_damage(code, damage).of_inode(u64::from(ino)));
    }

    pub(super) const fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    /// Records that the check is incomplete.
    pub(super) fn leave_out(&self) {
        self.is_incomplete.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_complete(&self) -> bool {
        !self.is_incomplete.load(Ordering::Relaxed) && !self.observer.is_cancelled()
    }

    /// Fills `bytes` from a block on. On a device error, reports it and returns `false`.
    pub(super) fn read(&self, block: Block, bytes: &mut [u8]) -> bool {
        let offset = self.geometry().byte_of(block);
        match self.device.read_at(offset, bytes) {
            Ok(()) => true,
            Err(error) => {
                self.leave_out();
                self.observer.found(Finding::new(IO).at_block(block.0).detail(error.to_string()));
                false
            }
        }
    }

    /// Reads one block. Returns `None` if the device fails.
    pub(super) fn block(&self, block: Block) -> Option<Vec<u8>> {
        let mut bytes = vec![0; self.block_size()];
        self.read(block, &mut bytes).then_some(bytes)
    }

    /// Reads the slot of an inode. Returns `None` if there is no such inode, or if the device fails.
    pub(super) fn slot(&self, ino: u32) -> Option<Vec<u8>> {
        let (group, index) = self.geometry().place_of(Ino(ino.into()))?;
        let facts = self.group(group).filter(|facts| facts.is_usable)?;
        let (block, offset) = self.geometry().inode_position(facts.desc.inode_table, index);
        let bytes = self.block(block)?;
        bytes.get(offset..offset + usize::from(self.geometry().inode_size)).map(<[u8]>::to_vec)
    }

    pub(super) fn group(&self, group: Group) -> Option<&GroupFacts> {
        self.groups.get(group.0 as usize)
    }

    /// Returns the inode in a slot.
    pub(super) fn subject(&self, ino: u32, slot: &[u8]) -> InodeUnderCheck {
        let mut inode = Inode::from_slot(slot);
        if self.params.sb.is_of_hurd() && !self.params.sb.features.incompat(Incompat::BIT64) {
            // The Hurd uses the high half for something else.
            inode.set_file_acl(inode.file_acl() & 0xffff_ffff);
        }
        let seed = self
            .params
            .checksums
            .then(|| inode_seed(self.params.sb.checksum_seed, Ino(ino.into()), inode.generation()));
        InodeUnderCheck { ino, inode, seed, is_orphan: self.orphans.contains(ino.into()) }
    }
}

impl InodeUnderCheck {
    /// Returns whether it was removed while it was open, so that recovery frees it.
    pub(super) fn is_removed(&self) -> bool {
        self.is_orphan && self.inode.links_count() == 0
    }

    /// Returns the block of its passive translator in a file system of the Hurd, if there is one.
    pub(super) fn translator(&self, context: &Context<'_>) -> Option<Block> {
        let block = Block(self.inode.translator().into());
        let has_one = self.has_translator(context);
        Some(block).filter(|block| has_one && context.geometry().contains(*block, 1))
    }

    /// Returns whether it has a passive translator, whose block may be outside the file system.
    pub(super) fn has_translator(&self, context: &Context<'_>) -> bool {
        context.params.sb.is_of_hurd() && self.has_map() && self.inode.translator() != 0
    }

    /// Returns whether it has a block map.
    pub(super) fn has_map(&self) -> bool {
        let is_of_type = match self.inode.file_type() {
            Some(FileType::Regular | FileType::Directory) => true,
            Some(FileType::Symlink) => self.inode.size() >= I_BLOCK_SIZE as u64,
            _ => false,
        };
        is_of_type && !self.has(flags::INLINE_DATA) && self.ino != RESIZE_INO
    }

    /// Returns whether any of the flags is set.
    pub(super) fn has(&self, flags: u32) -> bool {
        self.inode.has_flag(flags)
    }
}
