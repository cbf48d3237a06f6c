//! Orphans that an operation creates and ends: noted while it runs, recorded at its commit.
//!
//! Differences from XFS: one operation may note an inode twice (a truncation that begins and ends), so the notes are
//! first merged. A record may be a slot of the orphan file, which is claimed and released without a lock. There is one
//! list, whose head is in the superblock.

use operations::InMemoryUndo;
use operations::chain::Chain;
use operations::orphans::{HeldChains, OrphanChanges, Turn};
use smallvec::SmallVec;
use vfs::Ino;

use super::slots::Slot;
use super::{OrphanLocation, Orphans};
use crate::format::address::Block;

/// One record to add or remove.
#[derive(Clone, Copy)]
pub(super) struct OrphanUpdate {
    pub(super) ino: Ino,
    pub(super) place: OrphanLocation,
    pub(super) turn: Turn,
}

/// Block and byte offset of an inode's slot.
pub(super) type SlotPlace = (Block, usize);

/// Changes of orphans by one operation.
pub(crate) struct Pending<'a> {
    orphans: &'a Orphans,
    pub(super) changes: OrphanChanges<'a, OrphanLocation, SlotPlace>,
    /// Slots to release if the operation fails.
    claimed: SmallVec<[Slot; 2]>,
    /// Slots to release if the operation commits.
    emptied: SmallVec<[Slot; 2]>,
    /// Held from the first change of the list to the end of the operation.
    pub(super) list: Option<HeldChains<'a, Chain>>,
}

impl<'a> Pending<'a> {
    pub(crate) fn new(orphans: &'a Orphans) -> Self {
        Self {
            orphans,
            changes: OrphanChanges::new(&orphans.table),
            claimed: SmallVec::new(),
            emptied: SmallVec::new(),
            list: None,
        }
    }

    /// Merges the notes into changes, in order, and claims slots for new records.
    pub(super) fn plan(&mut self) -> SmallVec<[OrphanUpdate; 2]> {
        let notes = self.changes.take_notes();
        let mut changes = SmallVec::new();
        for (at, &(ino, turn)) in notes.iter().enumerate() {
            let is_last = notes[at + 1..].iter().all(|(later, _)| *later != ino);
            if !is_last && !self.orphans.records_all() {
                continue;
            }
            let place = match (turn, self.changes.place(ino)) {
                (Turn::Begins, Some(_)) | (Turn::Ends | Turn::Freed, None) => continue,
                (Turn::Begins, None) => self.orphans.claim(),
                (Turn::Ends | Turn::Freed, Some(place)) => place,
            };
            if let OrphanLocation::File(slot) = place {
                match turn {
                    Turn::Begins => self.claimed.push(slot),
                    Turn::Ends | Turn::Freed => self.emptied.push(slot),
                }
            }
            self.changes.set_place(ino, (turn == Turn::Begins).then_some(place));
            changes.push(OrphanUpdate { ino, place, turn });
        }
        changes
    }
}

impl InMemoryUndo for Pending<'_> {
    fn keep(&mut self) {
        self.changes.keep();
        self.claimed.clear();
        if let Some(slots) = self.orphans.slots.get() {
            self.emptied.drain(..).for_each(|slot| slots.release(slot));
        }
        if let Some(mut list) = self.list.take() {
            list.keep();
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(slots) = self.orphans.slots.get() {
            self.claimed.drain(..).for_each(|slot| slots.release(slot));
        }
    }
}
