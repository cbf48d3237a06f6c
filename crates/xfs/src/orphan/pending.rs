//! The inodes that an operation puts on lists or takes off: noted while it runs, recorded when it
//! commits.
//!
//! What differs from ext4: each inode has its list, in its group, and lists are changed only by operations
//! that hold the group, in ascending order. Notes are recorded as they are: nothing makes an inode an orphan
//! and ends that in one operation.

use operation::Side;
use operation::orphans::{HeldChains, OrphanChanges};
use smallvec::SmallVec;

use super::{Listed, Lists, Unlinked};
use crate::format::address::{AgNumber, Block};

/// The block of an inode and its slot's first byte there.
pub(super) type SlotPlace = (Block, usize);

/// An operation's part in the lists.
pub(crate) struct Pending<'a> {
    unlinked: &'a Unlinked,
    pub(super) changes: OrphanChanges<'a, Listed, SlotPlace>,
    /// The lists of groups, from the first change to the end of the operation.
    held: SmallVec<[(AgNumber, HeldChains<'a, Lists>); 1]>,
}

impl<'a> Pending<'a> {
    pub(crate) fn new(unlinked: &'a Unlinked) -> Self {
        let changes = OrphanChanges::new(&unlinked.table);
        Self { unlinked, changes, held: SmallVec::new() }
    }

    /// The lists of a group that the operation holds.
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

impl Side for Pending<'_> {
    fn keep(&mut self) {
        self.changes.keep();
        self.held.drain(..).for_each(|(_, mut lists)| lists.keep());
    }
}
