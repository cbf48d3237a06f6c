//! Bringing the names that wait into the hash index when a checkpoint is closed.

use std::ops::Range;

use transaction::{BufferId, Corruption, Txn};

use super::buffers::Entries;
use super::node::leaf_at;
use super::state::DirState;
use super::view::kind_of;
use crate::format::dir::leaf::{self, LeafKind};
use crate::format::dir::{Layout, Part};
use crate::format::edit::Edit;

/// Leaves that are held at a time.
const LEAVES_AT_ONCE: usize = 32;

/// A block held by a transaction, to be changed.
struct Held<'t, 'e> {
    txn: &'t mut Txn<'e>,
    id: BufferId,
}

impl Edit for Held<'_, '_> {
    fn bytes(&self) -> &[u8] {
        self.txn.data(self.id)
    }

    fn edit(&mut self, range: Range<usize>) -> &mut [u8] {
        self.txn.edit(self.id, range)
    }
}

/// Puts entries into a leaf that has room for them. False if it does not look like one.
pub(super) fn merge(layout: &Layout, held: &mut impl Edit, entries: &mut Entries) -> bool {
    leaf::kind(layout, held.bytes()) == Some(LeafKind::Many) && leaf::merge(layout, held, entries)
}

/// Brings all that waits in a directory into its leaves, some at a time. What waits is let go when the
/// leaves have it for good.
pub(super) fn merge_all(
    layout: &Layout,
    state: &mut DirState,
    txn: &mut Txn<'_>,
) -> transaction::Result<()> {
    let mut next = 0;
    loop {
        let mut merged: smallvec::SmallVec<[u32; LEAVES_AT_ONCE]> = smallvec::SmallVec::new();
        while merged.len() < LEAVES_AT_ONCE
            && let Some((number, block)) = state.buffers.next_waiting(next)
        {
            let at = leaf_at(layout, number);
            let tag = kind_of(Part::Leaf).of_inode(state.ino, at.0 as u32);
            let id = txn.buffer(block.0, tag)?;
            let mut entries: Entries = state.buffers.entries(number).collect();
            if !merge(layout, &mut Held { txn, id }, &mut entries) {
                let damage = Corruption::new("directory leaf", "no room for names that wait");
                return Err(damage.at_block(block.0).of_inode(state.ino.0).into());
            }
            merged.push(number);
            next = number + 1;
        }
        if merged.is_empty() {
            return Ok(());
        }
        txn.join_part();
        merged.into_iter().for_each(|number| state.buffers.settle(number));
    }
}
