//! The inodes that an operation puts on lists or takes off: noted while it runs, recorded when it
//! commits.

use parking_lot::MutexGuard;
use smallvec::SmallVec;
use transaction::Corruption;
use vfs::chain::{Pointer, Undo};
use vfs::{Ino, Result};

use super::{Listed, Lists, Unlinked, bucket_of};
use crate::format::address::{AgBlock, AgIno, AgNumber, Block};
use crate::format::ag;
use crate::format::bytes::{be32, put32};
use crate::format::inode::{NEXT_UNLINKED_OFFSET, seal_slot};
use crate::inode::Handle;
use crate::kind::Kind;
use crate::op::Op;

/// Whether an inode gets on its list or off it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Begins,
    Ends,
    /// It becomes free, and has no link any more.
    Freed,
}

/// `di_next_unlinked` of an inode, to be written.
#[derive(Clone, Copy)]
struct Link {
    ino: Ino,
    block: Block,
    offset: usize,
    next: u32,
}

/// A group's lists, from the first change to the end of the operation, and how to take it back.
struct Held<'a> {
    group: AgNumber,
    lists: MutexGuard<'a, Lists>,
    undo: SmallVec<[(usize, Undo); 2]>,
}

/// An operation's part in the lists. Dropped without [`Pending::keep`], it takes everything back that
/// is in memory.
pub(crate) struct Pending<'a> {
    unlinked: &'a Unlinked,
    notes: SmallVec<[(Ino, Turn); 1]>,
    /// Whether inodes will be on lists if the operation commits.
    outcome: SmallVec<[(Ino, Option<Listed>); 1]>,
    held: SmallVec<[Held<'a>; 1]>,
    /// In ascending order of their slots.
    links: SmallVec<[Link; 1]>,
}

impl<'a> Pending<'a> {
    pub(crate) fn new(unlinked: &'a Unlinked) -> Self {
        Self {
            unlinked,
            notes: SmallVec::new(),
            outcome: SmallVec::new(),
            held: SmallVec::new(),
            links: SmallVec::new(),
        }
    }

    /// Makes what the operation did lasting in memory.
    pub(crate) fn keep(&mut self) {
        for (ino, place) in self.outcome.drain(..) {
            self.unlinked.table.set_place(ino, place);
        }
        for held in &mut self.held {
            held.undo.clear();
        }
        self.held.clear();
    }

    /// The lists of a group, whose lease is held.
    fn lists(&mut self, group: AgNumber) -> &mut Held<'a> {
        let at = self.held.iter().position(|held| held.group == group);
        let at = at.unwrap_or_else(|| {
            let lists = self.unlinked.groups[group.0 as usize].lock();
            self.held.push(Held { group, lists, undo: SmallVec::new() });
            self.held.len() - 1
        });
        &mut self.held[at]
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for (bucket, undo) in self.undo.drain(..).rev() {
            self.lists.bucket(bucket).undo(undo);
        }
    }
}

impl Held<'_> {
    /// Changes a list. The pointers that change by it, and its head.
    fn turn(&mut self, bucket: usize, ino: AgIno, turn: Turn) -> (SmallVec<[Pointer; 2]>, u32) {
        let list = self.lists.bucket(bucket);
        let mut pointers = SmallVec::new();
        let undo = match turn {
            Turn::Begins => {
                let (changed, undo) = list.push(ino.0);
                pointers.extend(changed);
                Some(undo)
            }
            Turn::Ends | Turn::Freed => list.remove(ino.0).map(|(changed, undo)| {
                let own = Pointer { at: ino.0, to: 0 };
                pointers.extend((turn == Turn::Ends).then_some(own));
                pointers.push(changed);
                undo
            }),
        };
        self.undo.extend(undo.map(|undo| (bucket, undo)));
        (pointers, list.head())
    }
}

/// A number of a list in memory as it is on disk.
const fn on_disk(ino: u32) -> u32 {
    if ino == 0 { AgIno::NULL.0 } else { ino }
}

impl Op<'_> {
    /// Puts an inode, whose lock is held, on its list when the operation commits.
    pub(crate) fn add_unlinked(&mut self, handle: &Handle) {
        self.unlinked.notes.push((handle.ino(), Turn::Begins));
    }

    /// Takes an inode, whose lock is held and that stays in use, off its list when the operation
    /// commits; nothing if it is on none.
    pub(crate) fn remove_unlinked(&mut self, handle: &Handle) {
        self.end_unlinked(handle, Turn::Ends);
    }

    /// As [`Op::remove_unlinked`], for an inode that is freed.
    pub(crate) fn forget_unlinked(&mut self, handle: &Handle) {
        self.end_unlinked(handle, Turn::Freed);
    }

    fn end_unlinked(&mut self, handle: &Handle, turn: Turn) {
        if self.fs.is_unlinked(handle.ino()) {
            self.unlinked.notes.push((handle.ino(), turn));
        }
    }

    /// Changes the lists as was noted, but for the links in the slots of inodes.
    pub(crate) fn record_unlinked(&mut self) -> Result<()> {
        let mut notes = std::mem::take(&mut self.unlinked.notes);
        notes.sort_by_key(|(ino, _)| *ino);
        for (ino, turn) in notes {
            let geometry = self.fs.volume.geometry;
            let (group, ag_ino) = geometry.split_ino(ino).ok_or(vfs::Error::NotFound)?;
            self.lease(group)?;
            let bucket = bucket_of(ag_ino);
            let (pointers, head) = self.unlinked.lists(group).turn(bucket, ag_ino, turn);
            for pointer in pointers {
                match pointer.at {
                    0 => self.set_bucket(group, bucket, on_disk(head))?,
                    at => self.note_link(group, AgIno(at), on_disk(pointer.to)),
                }
            }
            self.unlinked.outcome.push((ino, (turn == Turn::Begins).then_some(Listed)));
        }
        // Stable, so that of two links of one inode the later one is written last.
        self.unlinked.links.sort_by_key(|link| (link.block, link.offset));
        Ok(())
    }

    fn set_bucket(&mut self, group: AgNumber, bucket: usize, head: u32) -> Result<()> {
        let geometry = self.fs.volume.geometry;
        let (block, start) = ag::sector_place(&geometry, ag::AGI_SECTOR);
        let block = geometry.block_of(group, AgBlock(block));
        let id = self.buffer(block, Kind::AgHeader.of_group(group))?;
        let at = start + std::mem::offset_of!(ag::RawAgi, unlinked) + 4 * bucket;
        put32(self.txn.edit(id, at..at + 4), 0, head);
        Ok(())
    }

    /// Works out where a link lies.
    fn note_link(&mut self, group: AgNumber, ag_ino: AgIno, next: u32) {
        let geometry = &self.fs.volume.geometry;
        let ino = geometry.ino(group, ag_ino);
        let (block, offset) = geometry.inode_place(ag_ino);
        let block = geometry.block_of(group, block);
        self.unlinked.links.push(Link { ino, block, offset, next });
    }

    /// Writes the noted links in slots of blocks before `end`, or all that are left.
    pub(crate) fn write_links(&mut self, end: Option<Block>) -> Result<()> {
        while let Some(&link) = self.unlinked.links.first() {
            if end.is_some_and(|end| link.block >= end) {
                break;
            }
            self.unlinked.links.remove(0);
            self.write_link(link)?;
        }
        Ok(())
    }

    fn write_link(&mut self, link: Link) -> Result<()> {
        let id = self.buffer(link.block, Kind::Inodes.plain())?;
        let slot = link.offset..link.offset + self.fs.volume.geometry.inode_size();
        let old = &self.txn.data(id)[slot.clone()];
        if old[2..4] == [0, 0] {
            let damage = Corruption::new("list of unlinked inodes", "an inode that is not in use");
            return Err(self.txn.corrupt(id, damage.of_inode(link.ino.0)).into());
        }
        if be32(old, NEXT_UNLINKED_OFFSET) != link.next {
            let slot = self.txn.edit(id, slot);
            put32(slot, NEXT_UNLINKED_OFFSET, link.next);
            seal_slot(slot);
        }
        Ok(())
    }
}
