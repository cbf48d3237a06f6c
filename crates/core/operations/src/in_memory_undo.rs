//! Changes of an operation in memory, outside of its transaction, and their undo.
//!
//! A transaction covers changes of blocks: a commit joins them to the checkpoint, a drop restores the old bytes. In
//! addition, an operation changes state in memory that represents or accompanies blocks. Each such part is an
//! [`InMemoryUndo`] with the same protocol:
//!
//! - While the operation runs, its visible state is locked, or changes are only collected.
//! - When the operation commits, [`InMemoryUndo::keep`] makes the changes permanent and releases the locks.
//! - Dropping it before that restores the old state and then releases the locks.
//!
//! **The order.** Changes are kept, or undone, while the transaction still holds the blocks, and the transaction ends
//! last. There are two reasons:
//!
//! - A checkpoint cannot be closed while a transaction is open. So the blocks of an operation and its changes in memory
//!   (counts of groups, usage of quotas, buffered names) are in the same checkpoint.
//! - The next holder of such a lock finds the blocks still locked, and so waits until they agree with the state: the
//!   bitmap of a group, the slot of an orphan, a block that contained inodes.
//!
//! The parts are independent of each other. They are kept in the order of [`Operation::undos`], and undone in the order
//! in which the fields of the operation are dropped. In the `struct` of an operation they are declared before the
//! transaction.
//!
//! [`Operation::undos`]: crate::Operation::undos

use crate::groups::{Group, HeldGroups};

/// State in memory that an operation changes. Dropping it before [`InMemoryUndo::keep`] undoes it.
pub trait InMemoryUndo {
    /// Makes the changes of the operation permanent and releases the locks. The transaction must still be open.
    fn keep(&mut self);
}

impl<S: InMemoryUndo> InMemoryUndo for &mut S {
    fn keep(&mut self) {
        S::keep(self);
    }
}

impl<G: Group> InMemoryUndo for HeldGroups<'_, G> {
    fn keep(&mut self) {
        self.keep_all();
    }
}

impl<A: InMemoryUndo, B: InMemoryUndo, C: InMemoryUndo> InMemoryUndo for (A, B, C) {
    fn keep(&mut self) {
        self.0.keep();
        self.1.keep();
        self.2.keep();
    }
}

impl<A: InMemoryUndo, B: InMemoryUndo, C: InMemoryUndo, D: InMemoryUndo> InMemoryUndo
    for (A, B, C, D)
{
    fn keep(&mut self) {
        self.0.keep();
        self.1.keep();
        self.2.keep();
        self.3.keep();
    }
}
