//! A list of orphans on disk, doubly linked in memory, so that removal from the middle needs no traversal.
//!
//! On disk the head (ext4: the superblock's `s_last_orphan`; XFS: a bucket of a group) contains the first inode, and
//! each orphan's inode the next one (`i_dtime`, `di_next_unlinked`).

use std::collections::HashMap;

/// Neighbours of an orphan, 0 for none.
#[derive(Clone, Copy, Default)]
struct Neighbours {
    previous: u32,
    next: u32,
}

/// The list. Inode numbers are never 0, so 0 means none.
#[derive(Default)]
pub struct Chain {
    head: u32,
    members: HashMap<u32, Neighbours>,
}

/// A pointer that changes on disk: the pointer of `at` (0 for the head) becomes `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The orphan that contains the pointer; 0 for the head.
    pub at: u32,
    /// The next orphan; 0 for none.
    pub to: u32,
}

/// Information to undo a change of the list.
#[derive(Clone, Copy)]
pub(crate) enum Undo {
    /// An orphan was inserted at the head.
    Pushed(u32),
    /// An orphan was removed from between these.
    #[allow(missing_docs, reason = "the names are self-explanatory")]
    Removed { ino: u32, previous: u32, next: u32 },
}

impl Chain {
    /// Returns the first orphan; 0 for none.
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    /// Inserts an orphan that is not on the list at its head. Returns the pointers that change.
    pub(crate) fn push(&mut self, ino: u32) -> ([Pointer; 2], Undo) {
        let next = self.head;
        self.insert(ino, Neighbours { previous: 0, next });
        ([Pointer { at: 0, to: ino }, Pointer { at: ino, to: next }], Undo::Pushed(ino))
    }

    /// Appends an orphan that is not on the list behind `previous`, the last one.
    pub fn append(&mut self, ino: u32, previous: u32) {
        self.insert(ino, Neighbours { previous, next: 0 });
    }

    /// Removes an orphan from the list. Returns the pointer to it that changes, or `None` if it is not on the list.
    pub(crate) fn remove(&mut self, ino: u32) -> Option<(Pointer, Undo)> {
        let Neighbours { previous, next } = self.members.remove(&ino)?;
        self.join(previous, next);
        Some((Pointer { at: previous, to: next }, Undo::Removed { ino, previous, next }))
    }

    /// Returns whether an orphan is on the list.
    pub fn contains(&self, ino: u32) -> bool {
        self.members.contains_key(&ino)
    }

    /// Undoes the newest change.
    pub(crate) fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Pushed(ino) => {
                self.remove(ino);
            }
            Undo::Removed { ino, previous, next } => {
                self.insert(ino, Neighbours { previous, next });
            }
        }
    }

    fn insert(&mut self, ino: u32, neighbours: Neighbours) {
        self.members.insert(ino, neighbours);
        self.point(neighbours.previous, ino);
        if let Some(next) = self.members.get_mut(&neighbours.next) {
            next.previous = ino;
        }
    }

    fn join(&mut self, previous: u32, next: u32) {
        self.point(previous, next);
        if let Some(after) = self.members.get_mut(&next) {
            after.previous = previous;
        }
    }

    fn point(&mut self, at: u32, to: u32) {
        match self.members.get_mut(&at) {
            Some(neighbours) => neighbours.next = to,
            None => self.head = to,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Returns the list according to the pointers on disk.
    fn read(disk: &BTreeMap<u32, u32>) -> Vec<u32> {
        let next = |at: &u32| disk.get(at).copied().filter(|&next| next != 0);
        std::iter::successors(next(&0), next).collect()
    }

    proptest! {
        #[test]
        fn pointers_on_disk_follow_the_list(
            steps in proptest::collection::vec((any::<bool>(), any::<bool>(), 1_u32..20), 1..100),
        ) {
            let (mut list, mut model, mut disk) = (Chain::default(), Vec::new(), BTreeMap::new());
            for (push, fail, ino) in steps {
                if push == model.contains(&ino) {
                    continue;
                }
                let (pointers, undo) = if push {
                    let (pointers, undo) = list.push(ino);
                    (pointers.to_vec(), undo)
                } else {
                    let (pointer, undo) = list.remove(ino).unwrap();
                    (vec![pointer], undo)
                };
                if fail {
                    list.undo(undo);
                    continue;
                }
                disk.extend(pointers.iter().map(|p| (p.at, p.to)));
                if push {
                    model.insert(0, ino);
                } else {
                    model.retain(|&m| m != ino);
                }
                prop_assert_eq!(read(&disk), model.clone());
                prop_assert_eq!(list.head(), model.first().copied().unwrap_or(0));
            }
        }
    }
}
