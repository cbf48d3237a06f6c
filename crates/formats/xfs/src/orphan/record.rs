//! Recording an operation's changes to the unlinked lists on disk.

use engine::Corruption;
use operations::Outcome;
use operations::orphans::{OrphanPointer, Turn};

use super::pending::SlotPlace;
use super::{Listed, bucket_of};
use crate::format::address::{AgBlock, AgIno, AgNumber, Block};
use crate::format::ag;
use crate::format::bytes::{be32, put32};
use crate::format::inode::{NEXT_UNLINKED_OFFSET, seal_slot};
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::op::Op;

/// Converts an inode number of a list in memory to its form on disk.
const fn on_disk(ino: u32) -> u32 {
    if ino == 0 { AgIno::NULL.0 } else { ino }
}

impl Op<'_> {
    /// Adds an inode to its list when the operation commits. The inode must be locked.
    pub(crate) fn add_unlinked(&mut self, handle: &Handle) {
        self.unlinked.changes.note(handle.ino(), Turn::Begins);
    }

    /// Removes an inode that stays in use from its list when the operation commits. Does nothing if it is on none. The
    /// inode must be locked.
    pub(crate) fn remove_unlinked(&mut self, handle: &Handle) {
        self.end_unlinked(handle, Turn::Ends);
    }

    /// Like [`Op::remove_unlinked`], for an inode that is freed.
    pub(crate) fn forget_unlinked(&mut self, handle: &Handle) {
        self.end_unlinked(handle, Turn::Freed);
    }

    fn end_unlinked(&mut self, handle: &Handle, turn: Turn) {
        if self.fs.is_unlinked(handle.ino()) {
            self.unlinked.changes.note(handle.ino(), turn);
        }
    }

    /// Makes the noted changes to the lists, except for the links in the slots of inodes.
    pub(crate) fn record_unlinked(&mut self) -> Outcome<()> {
        let mut notes = self.unlinked.changes.take_notes();
        notes.sort_by_key(|(ino, _)| *ino);
        for (ino, turn) in notes {
            let geometry = self.fs.volume.geometry;
            let (group, ag_ino) = geometry.split_ino(ino).ok_or(vfs::Error::NotFound)?;
            self.ag(group)?;
            let bucket = bucket_of(ag_ino);
            let lists = self.unlinked.lists(group);
            let (pointers, head) = (lists.turn(bucket, ag_ino.0, turn), lists.head(bucket));
            for pointer in pointers {
                match pointer.at {
                    0 => self.set_bucket(group, bucket, on_disk(head))?,
                    at => self.note_link(group, AgIno(at), on_disk(pointer.to)),
                }
            }
            self.unlinked.changes.set_place(ino, (turn == Turn::Begins).then_some(Listed));
        }
        self.unlinked.changes.sort_links();
        Ok(())
    }

    fn set_bucket(&mut self, group: AgNumber, bucket: usize, head: u32) -> Outcome<()> {
        let geometry = self.fs.volume.geometry;
        let (block, start) = ag::sector_place(&geometry, ag::AGI_SECTOR);
        let block = geometry.block_of(group, AgBlock(block));
        let id = self.buffer(block, BlockKind::AgHeader.of_group(group))?;
        let at = start + std::mem::offset_of!(ag::RawAgi, unlinked) + 4 * bucket;
        put32(self.txn.edit(id, at..at + 4), 0, head);
        Ok(())
    }

    /// Notes a link and its location.
    fn note_link(&mut self, group: AgNumber, ag_ino: AgIno, next: u32) {
        let geometry = &self.fs.volume.geometry;
        let ino = geometry.ino(group, ag_ino);
        let (block, offset) = geometry.inode_place(ag_ino);
        let block = geometry.block_of(group, block);
        self.unlinked.changes.add_link(OrphanPointer { ino, slot: (block, offset), next });
    }

    /// Writes the noted links in slots of blocks before `end`, or all remaining ones.
    pub(crate) fn write_links(&mut self, end: Option<Block>) -> Outcome<()> {
        while let Some(link) = self.unlinked.changes.next_link(end.map(|block| (block, 0))) {
            self.write_link(link)?;
        }
        Ok(())
    }

    fn write_link(&mut self, link: OrphanPointer<SlotPlace>) -> Outcome<()> {
        let (block, offset) = link.slot;
        let id = self.buffer(block, BlockKind::Inodes.plain())?;
        let slot = offset..offset + self.fs.volume.geometry.inode_size();
        let old = &self.txn.data(id)[slot.clone()];
        if old[2..4] == [0, 0] {
            let damage = Corruption::new("list of unlinked inodes", "an inode that is not in use");
            return Err(self.txn.corrupt(id, damage.of_inode(link.ino.0)).into());
        }
        if be32(old, NEXT_UNLINKED_OFFSET) != link.next {
            // Marks say which checksums are verified. They remain valid.
            let slot = self.txn.edit_noted(id, slot);
            put32(slot, NEXT_UNLINKED_OFFSET, link.next);
            seal_slot(slot);
        }
        Ok(())
    }
}
