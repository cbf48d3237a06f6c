//! Writing the records of new and ended orphans.

use engine::Corruption;
use operations::Outcome;
use operations::chain::Pointer;
use operations::orphans::{HeldChains, OrphanPointer, Turn};
use smallvec::SmallVec;
use vfs::Ino;

use super::OrphanLocation;
use super::pending::{OrphanUpdate, SlotPlace};
use super::slots::{Slot, Slots};
use crate::format::address::Block;
use crate::format::checksum::inode_seed;
use crate::format::inode::{self, DTIME_BYTES, Inode};
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::op::Op;

impl Op<'_> {
    /// Records `file` as an orphan at the commit, unless it is one. The caller holds its lock.
    pub(crate) fn add_orphan(&mut self, file: &Handle) {
        self.orphans.changes.note(file.ino(), Turn::Begins);
    }

    /// Removes the orphan record of `file` at the commit, if there is one.
    pub(crate) fn remove_orphan(&mut self, file: &Handle) {
        self.orphans.changes.note(file.ino(), Turn::Ends);
    }

    /// Notes that this operation is part of a truncation of `file`, and whether it is the last. Between the operations
    /// of a truncation the file is an orphan.
    pub(crate) fn note_truncation(&mut self, file: &Handle, is_done: bool) {
        if !is_done || self.fs.orphans.records_all() {
            self.add_orphan(file);
        }
        if is_done && file.inode.links_count() > 0 {
            self.remove_orphan(file);
        }
    }

    /// Writes the noted records, except the links in inode slots.
    pub(crate) fn record_orphans(&mut self) -> Outcome<()> {
        let changes = self.orphans.plan();
        self.change_slots(&changes)?;
        self.change_list(&changes)
    }

    fn change_slots(&mut self, changes: &[OrphanUpdate]) -> Outcome<()> {
        let Some(slots) = self.fs.orphans.slots.get() else { return Ok(()) };
        let in_file = changes.iter().filter_map(|change| match change.place {
            OrphanLocation::File(slot) => Some((slots.place(slot), slot, change)),
            OrphanLocation::List | OrphanLocation::Memory => None,
        });
        let mut in_file: SmallVec<[_; 2]> = in_file.collect();
        in_file.sort_by_key(|&(place, ..)| place);
        for (place, slot, change) in in_file {
            self.change_slot(slots, place, slot, change)?;
        }
        Ok(())
    }

    fn change_slot(
        &mut self,
        slots: &Slots,
        place: Block,
        slot: Slot,
        change: &OrphanUpdate,
    ) -> Outcome<()> {
        let id = self.txn.buffer(place.0, BlockKind::Orphan.of(slots.owner))?;
        let ino = (change.ino.0 as u32).to_le_bytes();
        let (expected, new) = match change.turn {
            Turn::Begins => ([0; 4], ino),
            Turn::Ends | Turn::Freed => (ino, [0; 4]),
        };
        let found = &self.txn.data(id)[slot.bytes()];
        if found != expected {
            let found = u32::from_le_bytes(found.try_into().unwrap_or_default());
            let damage = Corruption::new("orphan file", "a slot changed unexpectedly")
                .mismatch(u32::from_le_bytes(expected), found);
            return Err(self.corrupt(id, damage, slots.owner).into());
        }
        self.txn.edit(id, slot.bytes()).copy_from_slice(&new);
        Ok(())
    }

    fn change_list(&mut self, changes: &[OrphanUpdate]) -> Outcome<()> {
        let mut pointers = SmallVec::<[Pointer; 4]>::new();
        let mut head = None;
        for change in changes.iter().filter(|change| change.place == OrphanLocation::List) {
            let orphans = &self.fs.orphans;
            let list = self.orphans.list.get_or_insert_with(|| HeldChains::hold(&orphans.list));
            pointers.extend(list.turn((), change.ino.0 as u32, change.turn));
            head = Some(list.head(()));
        }
        if let Some(head) = head
            && pointers.iter().any(|pointer| pointer.at == 0)
        {
            let volume = &self.fs.volume;
            volume.edit_superblock(&mut self.txn, |raw| raw.last_orphan = head.into())?;
        }
        self.note_links(&pointers)
    }

    /// Determines the slots of the links to write. An inode that this operation frees gets no link.
    fn note_links(&mut self, pointers: &[Pointer]) -> Outcome<()> {
        let volume = &self.fs.volume;
        for &Pointer { at, to } in pointers.iter().filter(|pointer| pointer.at != 0) {
            let ino = Ino(at.into());
            if self.makes_free(ino) {
                continue;
            }
            let outside = || {
                Corruption::new("orphan list", "an inode outside the file system").of_inode(ino.0)
            };
            let (group, index) = volume.geometry.place_of(ino).ok_or_else(outside)?;
            let table = volume.groups.inode_table(group);
            let (block, offset) = volume.geometry.inode_position(table, index);
            self.orphans.changes.add_link(OrphanPointer { ino, slot: (block, offset), next: to });
        }
        self.orphans.changes.sort_links();
        Ok(())
    }

    /// Writes the noted links in slots before `end`, or all that are left.
    pub(crate) fn link_orphans(&mut self, end: Option<SlotPlace>) -> Outcome<()> {
        while let Some(link) = self.orphans.changes.next_link(end) {
            self.write_link(link)?;
        }
        Ok(())
    }

    fn write_link(&mut self, link: OrphanPointer<SlotPlace>) -> Outcome<()> {
        let OrphanPointer { ino, slot: (block, offset), next } = link;
        let volume = &self.fs.volume;
        let id = self.txn.buffer(block.0, BlockKind::InodeTable.plain())?;
        let range = offset..offset + usize::from(volume.geometry.inode_size);
        let slot = &self.txn.data(id)[range.clone()];
        let seed = inode_seed(volume.sb.checksum_seed, ino, Inode::from_slot(slot).generation());
        let (computed, stored) = inode::slot_checksums(seed, slot);
        if volume.checksums && computed != stored {
            let damage = Corruption::checksum("inode", computed, stored).of_inode(ino.0);
            return Err(self.txn.corrupt(id, damage).into());
        }
        // The mark of a sealed slot remains valid.
        let slot = self.txn.edit_noted(id, range);
        slot[DTIME_BYTES].copy_from_slice(&next.to_le_bytes());
        if volume.checksums {
            inode::seal_slot(seed, slot);
        }
        Ok(())
    }
}
