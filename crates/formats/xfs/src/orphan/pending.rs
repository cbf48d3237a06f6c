//! Changes of an operation to the unlinked lists: noted while it runs, recorded when it commits.
//!
//! Differences from ext4: each inode has its own list, in its group, and only operations that hold the group change its
//! lists, in ascending order. Notes are recorded unchanged: no operation makes an inode an orphan and ends that state
//! again.

use operations::InMemoryUndo;
use operations::orphans::{HeldChains, OrphanChanges};
use smallvec::SmallVec;

use super::{Listed, Lists, Unlinked};
use crate::format::address::{AgNumber, Block};

/// The block of an inode, and the byte offset of its slot.
pub(super) type SlotPlace = (Block, usize);

/// The changes of an operation to the lists.
pub(crate) struct Pending<'a> {
    unlinked: &'a Unlinked,
    pub(super) changes: OrphanChanges<'a, Listed, SlotPlace>,
    /// The lists of groups, held from the first change to the end of the operation.
    held: SmallVec<[(AgNumber, HeldChains<'a, Lists>); 1]>,
}

impl<'a> Pending<'a> {
    pub(crate) fn new(unlinked: &'a Unlinked) -> Self {
        let changes = OrphanChanges::new(&unlinked.table);
        Self { unlinked, changes, held: SmallVec::new() }
    }

    /// Returns the lists of a group that the operation holds.
    pub(super) fn lists(&mut self, group: AgNumber) -> &mut HeldChains<'a, Lists> {
        let at = self.held.iter().position(|(held, _)| *held == group);
        let at = at.unwrap_or_else(|| {
            let lists = HeldChains::hold(&self.unlinked.groups[group.0 as usize]);
            self.held.push((group, lists));
            self.held.len() - 1
        });
        &mut self.held[at].1
    }
}

impl InMemoryUndo for Pending<'_> {
    fn keep(&mut self) {
        self.changes.keep();
        self.held.drain(..).for_each(|(_, mut lists)| lists.keep());
    }
}
