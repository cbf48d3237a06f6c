//! What an operation changes in memory, outside of its transaction: sides.
//!
//! A transaction keeps what is in blocks: it joins them to the checkpoint when it commits, and puts the old
//! bytes back when it is dropped. Beside it an operation changes state in memory that stands for blocks or
//! goes with them. Each such part is a [`Side`] with the same protocol:
//!
//! - While the operation runs, what others could see of the side is locked, or only noted.
//! - When the operation commits, [`Side::keep`] makes the change lasting and gives the locks back.
//! - A side that is dropped before puts everything back as it was, and then gives the locks back.
//!
//! **The order.** Sides are kept, or undone, while the transaction still holds the blocks, and the
//! transaction ends last. There are two reasons:
//!
//! - A checkpoint cannot be closed while a transaction is open. So the blocks of an operation and its sides
//!   (counts of groups, usage of quotas, buffered names) are in the same checkpoint.
//! - Who may have a side's lock next finds its blocks locked, and so waits until they are as the side
//!   says: the bitmap of a group, the slot of an orphan, a block that held inodes.
//!
//! Among themselves the sides are independent. They are kept in the order in which [`Operation::sides`]
//! lists them, and undone as the fields of the operation are dropped: in an operation's `struct` the sides
//! stand before the transaction.
//!
//! [`Operation::sides`]: crate::Operation::sides

use crate::groups::{Group, HeldGroups};

/// A part of an operation that is kept in memory. Dropped before [`Side::keep`], it is undone.
pub trait Side {
    /// Makes lasting what the operation changed, and gives back what it has locked. The transaction must
    /// still be open.
    fn keep(&mut self);
}

impl<S: Side> Side for &mut S {
    fn keep(&mut self) {
        S::keep(self);
    }
}

impl<G: Group> Side for HeldGroups<'_, G> {
    fn keep(&mut self) {
        self.keep_all();
    }
}

impl<A: Side, B: Side, C: Side> Side for (A, B, C) {
    fn keep(&mut self) {
        self.0.keep();
        self.1.keep();
        self.2.keep();
    }
}

impl<A: Side, B: Side, C: Side, D: Side> Side for (A, B, C, D) {
    fn keep(&mut self) {
        self.0.keep();
        self.1.keep();
        self.2.keep();
        self.3.keep();
    }
}
