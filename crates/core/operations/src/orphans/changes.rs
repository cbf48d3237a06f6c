//! Changes of orphans by an operation: collected while it runs, recorded when it commits.

use smallvec::SmallVec;
use vfs::Ino;

use crate::InMemoryUndo;
use crate::opens::OpenInodes;

/// Change of an inode's status as an orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It becomes an orphan.
    Begins,
    /// It stops being an orphan and stays in use.
    Ends,
    /// It is freed: it no longer has a pointer to another orphan.
    Freed,
}

/// A pointer to the next orphan that must be written to an inode's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrphanPointer<A> {
    /// Inode number.
    pub ino: Ino,
    /// Location of the slot. Slots are written in ascending order.
    pub slot: A,
    /// New value of the pointer on disk.
    pub next: u32,
}

/// Inodes that become or stop being orphans if an operation commits. The table of open inodes changes only at the
/// commit.
pub struct OrphanChanges<'a, P, A> {
    opens: &'a OpenInodes<P>,
    notes: SmallVec<[(Ino, Turn); 2]>,
    /// The future place of each inode's record.
    outcome: SmallVec<[(Ino, Option<P>); 2]>,
    /// Sorted by slot, after [`Self::sort_links`].
    links: SmallVec<[OrphanPointer<A>; 2]>,
}

impl<'a, P: Copy, A: Copy + Ord> OrphanChanges<'a, P, A> {
    /// Creates an empty set of changes.
    pub fn new(opens: &'a OpenInodes<P>) -> Self {
        Self { opens, notes: SmallVec::new(), outcome: SmallVec::new(), links: SmallVec::new() }
    }

    /// Adds a change of an inode, whose lock is held exclusively.
    pub fn note(&mut self, ino: Ino, turn: Turn) {
        self.notes.push((ino, turn));
    }

    /// Takes the collected changes, in their order, to record them.
    pub fn take_notes(&mut self) -> SmallVec<[(Ino, Turn); 2]> {
        std::mem::take(&mut self.notes)
    }

    /// Returns the place where an inode will be recorded if the operation commits; `None` if it will not be an orphan.
    pub fn place(&self, ino: Ino) -> Option<P> {
        let known = self.outcome.iter().rev().find(|(known, _)| *known == ino);
        known.map_or_else(|| self.opens.place(ino), |&(_, place)| place)
    }

    /// Sets the place where an inode will be recorded if the operation commits; `None` if it will not be an orphan.
    pub fn set_place(&mut self, ino: Ino, place: Option<P>) {
        self.outcome.push((ino, place));
    }

    /// Adds a pointer to be written.
    pub fn add_link(&mut self, link: OrphanPointer<A>) {
        self.links.push(link);
    }

    /// Sorts the pointers in the order of writing, after all have been added.
    pub fn sort_links(&mut self) {
        // Stable, so that the later of two links of an inode is written last.
        self.links.sort_by_key(|link| link.slot);
    }

    /// Returns the next pointer to be written in a slot before `end`, or in any slot if `end` is `None`.
    pub fn next_link(&mut self, end: Option<A>) -> Option<OrphanPointer<A>> {
        let first = self.links.first()?;
        (end.is_none_or(|end| first.slot < end)).then(|| self.links.remove(0))
    }
}

impl<P: Copy, A> InMemoryUndo for OrphanChanges<'_, P, A> {
    fn keep(&mut self) {
        for (ino, place) in self.outcome.drain(..) {
            self.opens.set_place(ino, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_learns_only_of_what_is_kept() {
        let opens = OpenInodes::new();
        opens.set_place(Ino(7), Some('a'));
        let mut changes = OrphanChanges::<_, u32>::new(&opens);
        changes.set_place(Ino(7), None);
        changes.set_place(Ino(8), Some('b'));
        assert_eq!((changes.place(Ino(7)), changes.place(Ino(8))), (None, Some('b')));
        drop(changes);
        assert_eq!((opens.place(Ino(7)), opens.place(Ino(8))), (Some('a'), None));
        let mut changes = OrphanChanges::<_, u32>::new(&opens);
        changes.set_place(Ino(7), None);
        changes.set_place(Ino(8), Some('b'));
        changes.set_place(Ino(8), Some('c'));
        changes.keep();
        assert_eq!((opens.place(Ino(7)), opens.place(Ino(8))), (None, Some('c')));
    }

    #[test]
    fn links_come_in_the_order_of_slots_and_the_last_of_an_inode_last() {
        let opens = OpenInodes::<()>::new();
        let mut changes = OrphanChanges::new(&opens);
        let link = |ino, slot, next| OrphanPointer { ino: Ino(ino), slot, next };
        for link in [link(5, 50, 1), link(3, 30, 2), link(5, 50, 3)] {
            changes.add_link(link);
        }
        changes.sort_links();
        assert_eq!(changes.next_link(Some(30)), None);
        assert_eq!(changes.next_link(Some(31)), Some(link(3, 30, 2)));
        assert_eq!(changes.next_link(Some(50)), None);
        assert_eq!(changes.next_link(None), Some(link(5, 50, 1)));
        assert_eq!(changes.next_link(None), Some(link(5, 50, 3)));
        assert_eq!(changes.next_link(None), None);
    }
}
