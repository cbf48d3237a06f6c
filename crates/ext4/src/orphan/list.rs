//! The list of orphans as it is on disk, linked both ways in memory, so that removing one from the
//! middle takes no walk.
//!
//! On disk the superblock's `s_last_orphan` names the first, and each orphan's `i_dtime` the next.

use std::collections::HashMap;

/// The neighbours of an orphan, 0 for none.
#[derive(Clone, Copy, Default)]
struct Neighbours {
    previous: u32,
    next: u32,
}

/// The list. Inode numbers are never 0, which stands for none.
#[derive(Default)]
pub(super) struct List {
    head: u32,
    members: HashMap<u32, Neighbours>,
}

/// What a change of the list changes on disk: the pointer `at` (0 for the superblock's) becomes `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    pub(super) at: u32,
    pub(super) to: u32,
}

/// How to take a change of the list back.
#[derive(Clone, Copy)]
pub(super) enum Undo {
    Pushed(u32),
    Removed { ino: u32, previous: u32, next: u32 },
}

impl List {
    pub(super) fn head(&self) -> u32 {
        self.head
    }

    /// Puts an orphan that is not on the list at its head. The pointers that change.
    pub(super) fn push(&mut self, ino: u32) -> ([Pointer; 2], Undo) {
        let next = self.head;
        self.insert(ino, Neighbours { previous: 0, next });
        ([Pointer { at: 0, to: ino }, Pointer { at: ino, to: next }], Undo::Pushed(ino))
    }

    /// Puts an orphan that is not on the list behind `previous`, its last one.
    pub(super) fn append(&mut self, ino: u32, previous: u32) {
        self.insert(ino, Neighbours { previous, next: 0 });
    }

    /// Takes an orphan off the list. The pointer to it that changes.
    pub(super) fn remove(&mut self, ino: u32) -> Option<(Pointer, Undo)> {
        let Neighbours { previous, next } = self.members.remove(&ino)?;
        self.join(previous, next);
        Some((Pointer { at: previous, to: next }, Undo::Removed { ino, previous, next }))
    }

    /// Takes the newest change back.
    pub(super) fn undo(&mut self, undo: Undo) {
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

    /// The list as its pointers on disk would be read.
    fn read(disk: &BTreeMap<u32, u32>) -> Vec<u32> {
        let next = |at: &u32| disk.get(at).copied().filter(|&next| next != 0);
        std::iter::successors(next(&0), next).collect()
    }

    proptest! {
        #[test]
        fn pointers_on_disk_follow_the_list(
            steps in proptest::collection::vec((any::<bool>(), any::<bool>(), 1_u32..20), 1..100),
        ) {
            let (mut list, mut model, mut disk) = (List::default(), Vec::new(), BTreeMap::new());
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
