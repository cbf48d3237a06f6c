//! An allocation group that an operation holds.

use operation::Outcome;
use operation::reserve::Claim;
use transaction::Txn;

use super::ags::{self, GroupGuard};
use super::busy::BusyView;
use crate::format::address::{AgBlock, AgNumber};
use crate::inode::ChunkChanges;
use crate::op::Op;
use crate::volume::Volume;

/// An allocation group that an operation holds, with all that a change of the group needs of the
/// operation: its free space and AGFL, its reverse map and counts of references, its inode chunks.
///
/// The group stays held when this is dropped: its guard belongs to the operation.
pub(crate) struct HeldAg<'o, 'a> {
    pub(crate) volume: &'a Volume,
    /// What the group's headers say.
    pub(crate) guard: &'o mut GroupGuard<'a>,
    pub(crate) txn: &'o mut Txn<'a>,
    /// Blocks of inodes that the operation has made or given back.
    pub(crate) inode_blocks: &'o mut ChunkChanges<'a>,
    /// How much of the reserve the operation may take.
    pub(crate) claim: Claim,
    /// Whether changes go through a log. Without one nothing is ever busy.
    has_log: bool,
}

impl HeldAg<'_, '_> {
    pub(crate) fn number(&self) -> AgNumber {
        self.guard.number()
    }

    /// Free blocks that a claim allows to take.
    pub(crate) fn usable(&self, claim: Claim) -> u32 {
        ags::usable(self.guard, claim)
    }

    /// Keeps blocks that become free from file data until a checkpoint is durable, if the operation
    /// commits and there is a log.
    pub(super) fn make_busy(&mut self, start: AgBlock, len: u32) {
        if self.has_log {
            self.guard.add_busy(start.0..start.0 + len);
        }
    }

    /// The blocks that file data must not have even if they are free.
    pub(super) fn busy(&self) -> BusyView<'_> {
        BusyView { busy: self.guard.busy_set(), freed: self.guard.own_busy() }
    }
}

impl<'a> Op<'a> {
    /// Holds a group to the end of the operation. If the group comes out of order and another operation
    /// has it, this operation starts again.
    pub(crate) fn ag(&mut self, ag: AgNumber) -> Outcome<HeldAg<'_, 'a>> {
        let at = self.group_guards.hold(ag)?;
        Ok(self.held_ag(at))
    }

    /// Holds a group if the operation holds it already or no other operation has it.
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
