//! Merging the names of insert buffers into the hash index when a checkpoint is closed.

use engine::{Corruption, Txn};
use smallvec::SmallVec;

use super::insert_buffer::BufferedEntries;
use super::state::DirState;
use super::tag::tag_of;
use crate::format::dir::leaf::{self, LeafKind};
use crate::format::dir::{DirBlockKind, DirLayout};
use crate::format::edit::Edit;
use crate::op::held::HeldBlock;

/// Maximum number of leaves held at a time.
const LEAVES_AT_ONCE: usize = 32;

/// Merges entries into a leaf with room for them. Returns false if the block is not a leaf or has no room.
pub(super) fn merge(
    layout: &DirLayout,
    held: &mut impl Edit,
    entries: &mut BufferedEntries,
) -> bool {
    leaf::kind(layout, held.bytes()) == Some(LeafKind::Many) && leaf::merge(layout, held, entries)
}

/// Merges all buffered entries of a directory into their leaves, a few leaves at a time. An entry is removed from the
/// buffer once its leaf has it permanently.
pub(super) fn merge_all(
    layout: &DirLayout,
    state: &mut DirState,
    txn: &mut Txn<'_>,
) -> engine::Result<()> {
    let buffer = &mut state.nodes.insert_buffer;
    let mut next = 0;
    loop {
        let mut merged: SmallVec<[u32; LEAVES_AT_ONCE]> = SmallVec::new();
        while merged.len() < LEAVES_AT_ONCE
            && let Some((number, block)) = buffer.next_leaf(next)
        {
            let at = layout.leaf_at(number);
            let id = txn.buffer(block.0, tag_of(DirBlockKind::Leaf, state.ino, at))?;
            let mut entries: BufferedEntries = buffer.entries(number).collect();
            if !merge(layout, &mut HeldBlock { txn, id }, &mut entries) {
                let damage = Corruption::new("directory leaf", "no space for the buffered names");
                return Err(damage.at_block(block.0).of_inode(state.ino.0).into());
            }
            merged.push(number);
            next = number + 1;
        }
        if merged.is_empty() {
            return Ok(());
        }
        // The merged entries are part of the checkpoint from here on, so they are no longer buffered.
        txn.join_part();
        merged.into_iter().for_each(|number| buffer.note_flushed(number));
    }
}
