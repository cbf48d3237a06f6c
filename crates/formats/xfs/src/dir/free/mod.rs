//! Finding a data block with room for a new entry in a node directory.
//!
//! On disk, the free-space index is a plain array of the longest unused range of each data block. The format does not
//! prescribe how to search it. This keeps the array in memory as a tree of maxima of sixteen values each, and finds the
//! first block with room in a few steps. With the feature `free-index-strategies`, which is for measurements, there are
//! four other strategies, which scan the array as kernels have done it or as was proposed.

mod bests;
#[cfg(feature = "free-index-strategies")]
mod scan;
mod strategy;
mod tree;

use operations::Outcome;
use vfs::Result;

use super::node::NodeChange;
use super::state::NodeState;
use super::view::View;
use crate::format::dir::{DirBlockKind, DirLayout, free};
use crate::op::source::Source;
use tree::MaxTree;

pub(super) use bests::Bests;
use bests::room_of;
#[cfg_attr(not(feature = "free-index-strategies"), expect(unreachable_pub))]
pub use strategy::FreeIndexStrategy;

/// Reads the values that a strategy caches.
pub(super) fn read_bests<S: Source>(
    strategy: FreeIndexStrategy,
    view: &mut View<'_, S>,
) -> Result<Bests> {
    let layout = view.layout;
    let mut bests = match strategy {
        FreeIndexStrategy::Tree => Bests::Tree(MaxTree::default()),
        #[cfg(feature = "free-index-strategies")]
        FreeIndexStrategy::BlockSkip => {
            let capacity = layout.free_capacity();
            Bests::PerBlock(bests::PerBlock { largest: Vec::new(), capacity })
        }
        #[cfg(feature = "free-index-strategies")]
        _ => return Ok(Bests::None),
    };
    let count = view.data_blocks()?;
    for first in (0..count).step_by(layout.free_capacity()) {
        view.with_if(layout.free_at(first).0, DirBlockKind::Free, |block| {
            let slots = free::slots(&layout, block);
            let values = slots.iter().map(|slot| room_of(u16::from_be_bytes(*slot)));
            match &mut bests {
                Bests::Tree(tree) => tree.extend(first, values),
                #[cfg(feature = "free-index-strategies")]
                Bests::PerBlock(per) => per.note(first, values.max().unwrap_or(0)),
                #[cfg(feature = "free-index-strategies")]
                Bests::None => {}
            }
        })?;
    }
    Ok(bests)
}

impl NodeState {
    /// Updates the cached value of a data block from a block of the free-space index.
    pub(super) fn note_best(&mut self, layout: &DirLayout, number: u32, block: &[u8]) {
        let slot = number as usize % layout.free_capacity();
        let slots = free::slots(layout, block);
        let value = |slot: &[u8; 2]| room_of(u16::from_be_bytes(*slot));
        #[cfg(feature = "free-index-strategies")]
        if let Bests::PerBlock(per) = &mut self.bests {
            per.note(number, slots.iter().map(value).max().unwrap_or(0));
            self.set_changed();
            return;
        }
        self.set_best(number, slots.get(slot).map_or(0, value));
    }
}

impl NodeChange<'_, '_> {
    /// Finds a data block with an unused range of at least `size` bytes.
    pub(super) fn find_room(&mut self, size: usize) -> Outcome<Option<u32>> {
        #[cfg(feature = "free-index-strategies")]
        if let Some(order) = scan::Order::of(self.dir.op.fs.free_index) {
            return self.scan_room(size, order);
        }
        match &self.state.bests {
            Bests::Tree(tree) => Ok(tree.first_with(size as u16)),
            #[cfg(feature = "free-index-strategies")]
            _ => self.scan_room(size, scan::Order::Reverse),
        }
    }
}
