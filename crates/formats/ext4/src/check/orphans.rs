//! Orphans: inodes on the list or in the orphan file. They are in use, with or without names.

use std::collections::HashSet;

use vfs::check::Finding;

use super::codes::{ORPHAN_FILE, ORPHAN_FILE_ENTRY, ORPHAN_LIST, ORPHAN_PRESENT};
use super::context::{Context, InodeUnderCheck};
use super::mapping::{FileExtent, MapVisitor, walk};
use crate::format::address::Block;
use crate::format::features::{Compat, RoCompat};
use crate::format::inode::Inode;
use crate::format::orphan;

/// Maximum number of blocks of an orphan file.
const FILE_BLOCKS_MAX: u64 = 512;

impl Context<'_> {
    /// Follows the list and reads the orphan file.
    pub(super) fn find_orphans(&self) {
        self.follow_list();
        let sb = &self.params.sb;
        if sb.features.compat(Compat::ORPHAN_FILE) {
            let ino = sb.raw.orphan_file_inum.get();
            if !sb.features.compat(Compat::HAS_JOURNAL) {
                let finding = Finding::new(ORPHAN_FILE).of_inode(ino.into());
                self.tell(finding.detail("there is no journal"));
            }
            self.read_orphan_file(ino);
        } else if sb.features.ro_compat(RoCompat::ORPHAN_PRESENT) {
            self.tell(Finding::new(ORPHAN_PRESENT).detail("there is no orphan file"));
        }
    }

    fn can_be_orphan(&self, ino: u32) -> bool {
        (self.params.sb.first_ino..=self.params.sb.inodes_count).contains(&ino)
    }

    fn follow_list(&self) {
        let mut ino = self.params.sb.raw.last_orphan.get();
        while ino != 0 {
            let tell = |detail: &str| {
                self.tell(Finding::new(ORPHAN_LIST).of_inode(ino.into()).detail(detail));
            };
            if !self.can_be_orphan(ino) {
                return tell("the inode does not exist or is reserved");
            }
            let Some(slot) = self.slot(ino) else { return };
            let inode = Inode::from_slot(&slot);
            if inode.file_type().is_none() {
                return tell("the inode is not in use");
            }
            if !self.orphans.insert(ino.into()) {
                return tell("the list contains the inode twice");
            }
            ino = inode.dtime();
        }
    }

    fn read_orphan_file(&self, ino: u32) {
        let Some(slot) = self.slot(ino) else {
            return self.tell(
                Finding::new(ORPHAN_FILE).detail("the inode does not exist").of_inode(ino.into()),
            );
        };
        let file = self.subject(ino, &slot);
        let log = self.geometry().block_size_log;
        let blocks = file.inode.size() >> log;
        let is_whole = file.inode.size().is_multiple_of(1 << log);
        if !is_whole || !(1..=FILE_BLOCKS_MAX).contains(&blocks) {
            let finding = Finding::new(ORPHAN_FILE).of_inode(ino.into()).field("size");
            let expected = format!("1 to {FILE_BLOCKS_MAX} blocks");
            return self.tell(finding.mismatch(expected, format!("{} bytes", file.inode.size())));
        }
        let mut places = Places::default();
        walk(self, &file, &mut places);
        let mut is_full = false;
        for number in 0..blocks {
            match places.all.get(number as usize) {
                Some(&place) => is_full |= self.read_orphan_block(&file, place),
                None => {
                    let finding = Finding::new(ORPHAN_FILE).of_inode(ino.into());
                    return self.tell(finding.detail(format!("its block {number} is a hole")));
                }
            }
        }
        if is_full && !self.params.sb.features.ro_compat(RoCompat::ORPHAN_PRESENT) {
            self.tell(Finding::new(ORPHAN_PRESENT));
        }
    }

    /// Reads a block of the orphan file. Returns whether it contains an orphan.
    fn read_orphan_block(&self, file: &InodeUnderCheck, place: Block) -> bool {
        let Some(bytes) = self.block(place) else { return false };
        let slots = match orphan::parse(&bytes, place, file.seed) {
            Ok(slots) => slots,
            Err(damage) => {
                self.tell_damage(file.ino, ORPHAN_FILE, &damage);
                return false;
            }
        };
        for ino in orphan::orphans(slots) {
            let ino = ino.0 as u32;
            let is_used = || {
                let slot = self.slot(ino);
                slot.is_some_and(|slot| Inode::from_slot(&slot).file_type().is_some())
            };
            if !self.can_be_orphan(ino)
                || ino == file.ino
                || !is_used()
                || !self.orphans.insert(ino.into())
            {
                let finding = Finding::new(ORPHAN_FILE_ENTRY).of_inode(file.ino.into());
                self.tell(
                    finding.at_block(place.0).mismatch("an inode that can be an orphan", ino),
                );
            }
        }
        slots.iter().any(|slot| slot.get() != 0)
    }
}

/// Blocks of a small file, in order and without holes.
#[derive(Default)]
struct Places {
    all: Vec<Block>,
    /// Map nodes that were read.
    met: HashSet<Block>,
}

impl MapVisitor for Places {
    fn run(&mut self, run: FileExtent) {
        if run.unwritten || u64::from(run.first) != self.all.len() as u64 {
            return;
        }
        let len = run.len.min(FILE_BLOCKS_MAX as u32);
        self.all.extend((0..len).map(|at| run.start.plus(at.into())));
        self.all.truncate(FILE_BLOCKS_MAX as usize);
    }

    fn node(&mut self, block: Block) -> bool {
        self.met.insert(block)
    }
}
