//! An allocation group held by an operation.

use engine::Txn;
use operations::Outcome;
use operations::reserve::Claim;

use super::ags::{self, GroupGuard};
use super::busy::BusyView;
use crate::format::address::{AgBlock, AgNumber};
use crate::inode::ChunkChanges;
use crate::op::Op;
use crate::volume::Volume;

/// An allocation group held by an operation, with access to the operation's transaction for changes of the group: its
/// free space and AGFL, its reverse map and reference counts, its inode chunks.
///
/// The group stays held when this is dropped, because the operation owns the guard.
pub(crate) struct HeldAg<'o, 'a> {
    pub(crate) volume: &'a Volume,
    /// The state of the group's headers.
    pub(crate) guard: &'o mut GroupGuard<'a>,
    pub(crate) txn: &'o mut Txn<'a>,
    /// Blocks of inodes that the operation has added or freed.
    pub(crate) inode_blocks: &'o mut ChunkChanges<'a>,
    /// The part of the reserve that the operation may take.
    pub(crate) claim: Claim,
    /// True if changes are logged. Without a log no block is busy.
    has_log: bool,
}

impl HeldAg<'_, '_> {
    pub(crate) fn number(&self) -> AgNumber {
        self.guard.number()
    }

    /// Returns the number of free blocks that a claim may take.
    pub(crate) fn usable(&self, claim: Claim) -> u32 {
        ags::usable(self.guard, claim)
    }

    /// Marks freed blocks busy until the checkpoint is durable, if the operation commits and there is a log.
    pub(super) fn make_busy(&mut self, start: AgBlock, len: u32) {
        if self.has_log {
            self.guard.add_busy(start.0..start.0 + len);
        }
    }

    /// Returns the blocks that must not be used for file data even if they are free.
    pub(super) fn busy(&self) -> BusyView<'_> {
        BusyView { busy: self.guard.busy_set(), freed: self.guard.own_busy() }
    }
}

impl<'a> Op<'a> {
    /// Holds a group until the end of the operation. If the group is out of order and held by another operation, this
    /// operation restarts.
    pub(crate) fn ag(&mut self, ag: AgNumber) -> Outcome<HeldAg<'_, 'a>> {
        let at = self.group_guards.hold(ag)?;
        Ok(self.held_ag(at))
    }

    /// Holds a group if this operation holds it already or no other operation holds it.
    pub(super) fn try_ag(&mut self, ag: AgNumber) -> Option<HeldAg<'_, 'a>> {
        let at = self.group_guards.try_hold(ag)?;
        Some(self.held_ag(at))
    }

    fn held_ag(&mut self, at: usize) -> HeldAg<'_, 'a> {
        let fs = self.fs;
        HeldAg {
            volume: &fs.volume,
            guard: &mut self.group_guards[at],
            txn: &mut self.txn,
            inode_blocks: &mut self.inode_blocks,
            claim: self.claim,
            has_log: fs.engine.has_log(),
        }
    }
}
