//! Lists of orphans held by an operation.

use engine::locks::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::Turn;
use crate::InMemoryUndo;
use crate::chain::{Chain, Pointer, Undo};

/// Lists protected by one lock.
pub trait Chains {
    /// Identifies a list.
    type Which: Copy;

    /// Returns a list.
    fn chain(&mut self, which: Self::Which) -> &mut Chain;
}

impl Chains for Chain {
    type Which = ();

    fn chain(&mut self, (): ()) -> &mut Chain {
        self
    }
}

/// Lists held by an operation from its first change to its end. Dropping them before they are
/// [kept](InMemoryUndo::keep) undoes the changes.
pub struct HeldChains<'a, C: Chains> {
    chains: MutexGuard<'a, C>,
    undo: SmallVec<[(C::Which, Undo); 2]>,
}

impl<'a, C: Chains> HeldChains<'a, C> {
    /// Waits for the lists and holds them.
    pub fn hold(chains: &'a Mutex<C>) -> Self {
        Self { chains: chains.lock(), undo: SmallVec::new() }
    }

    /// Inserts an orphan at the head of a list or removes it from the list, according to `turn`. Returns the pointers
    /// that change on disk, except the pointer of an inode that is freed.
    pub fn turn(&mut self, which: C::Which, ino: u32, turn: Turn) -> SmallVec<[Pointer; 2]> {
        let chain = self.chains.chain(which);
        let mut pointers = SmallVec::new();
        let undo = match turn {
            Turn::Begins => {
                let (changed, undo) = chain.push(ino);
                pointers.extend(changed);
                Some(undo)
            }
            Turn::Ends | Turn::Freed => chain.remove(ino).map(|(changed, undo)| {
                let own = Pointer { at: ino, to: 0 };
                pointers.extend((turn == Turn::Ends).then_some(own));
                pointers.push(changed);
                undo
            }),
        };
        self.undo.extend(undo.map(|undo| (which, undo)));
        pointers
    }

    /// Returns the first orphan of a list; 0 for none.
    pub fn head(&mut self, which: C::Which) -> u32 {
        self.chains.chain(which).head()
    }
}

/// Dropping it releases the lock.
impl<C: Chains> InMemoryUndo for HeldChains<'_, C> {
    fn keep(&mut self) {
        self.undo.clear();
    }
}

impl<C: Chains> Drop for HeldChains<'_, C> {
    fn drop(&mut self) {
        for (which, undo) in self.undo.drain(..).rev() {
            self.chains.chain(which).undo(undo);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Removes all orphans of a list from its head on, and returns them.
    fn members(list: &Mutex<Chain>) -> Vec<u32> {
        let mut held = HeldChains::hold(list);
        let heads = std::iter::from_fn(|| {
            let head = held.head(());
            held.turn((), head, Turn::Freed);
            (head != 0).then_some(head)
        });
        heads.collect()
    }

    #[test]
    fn lists_that_are_not_kept_become_what_they_were() {
        let list = Mutex::new(Chain::default());
        let mut held = HeldChains::hold(&list);
        for ino in [1, 2, 3] {
            held.turn((), ino, Turn::Begins);
        }
        held.keep();
        drop(held);
        assert_eq!(members(&list), [3, 2, 1]);
        let mut held = HeldChains::hold(&list);
        held.turn((), 2, Turn::Ends);
        held.turn((), 4, Turn::Begins);
        held.turn((), 3, Turn::Freed);
        drop(held);
        assert_eq!(members(&list), [3, 2, 1]);
    }

    #[test]
    fn an_inode_that_becomes_free_has_no_pointer() {
        let list = Mutex::new(Chain::default());
        let mut held = HeldChains::hold(&list);
        let pointer = |at, to| Pointer { at, to };
        assert_eq!(held.turn((), 1, Turn::Begins)[..], [pointer(0, 1), pointer(1, 0)]);
        assert_eq!(held.turn((), 2, Turn::Begins)[..], [pointer(0, 2), pointer(2, 1)]);
        assert_eq!(held.turn((), 3, Turn::Begins)[..], [pointer(0, 3), pointer(3, 2)]);
        assert_eq!(held.turn((), 2, Turn::Ends)[..], [pointer(2, 0), pointer(3, 1)]);
        assert_eq!(held.turn((), 2, Turn::Ends)[..], []);
        assert_eq!(held.turn((), 3, Turn::Freed)[..], [pointer(0, 1)]);
    }
}
