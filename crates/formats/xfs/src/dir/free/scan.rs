//! Scanning the free-space index on disk.

use operations::Outcome;

use super::{Bests, FreeIndexStrategy};
use crate::dir::node::NodeChange;
use crate::dir::tag::tag_of;
use crate::format::address::FileBlock;
use crate::format::dir::free::{self, NO_BLOCK};
use crate::format::dir::{DirBlockKind, DirLayout};

/// Direction of a scan of the free-space index.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// From the first slot on, decoding the header for each slot.
    ForwardDecode,
    Forward,
    Reverse,
}

impl Order {
    /// Returns the direction of a strategy, or `None` if it does not scan.
    pub(super) fn of(strategy: FreeIndexStrategy) -> Option<Self> {
        match strategy {
            FreeIndexStrategy::Tree => None,
            FreeIndexStrategy::ForwardDecode => Some(Self::ForwardDecode),
            FreeIndexStrategy::Forward => Some(Self::Forward),
            FreeIndexStrategy::Reverse | FreeIndexStrategy::BlockSkip => Some(Self::Reverse),
        }
    }
}

impl NodeChange<'_, '_> {
    /// Scans the blocks of the index one by one.
    pub(super) fn scan_room(&mut self, size: usize, order: Order) -> Outcome<Option<u32>> {
        let layout = self.dir.layout;
        let count = self.view().data_blocks()?.div_ceil(layout.free_capacity() as u32);
        for i in 0..count {
            let index = if order == Order::Reverse { count - 1 - i } else { i };
            if let Bests::PerBlock(per) = &self.state.bests {
                let largest = per.largest.get(index as usize).copied().unwrap_or(0);
                if usize::from(largest) < size {
                    continue;
                }
            }
            let first = index * layout.free_capacity() as u32;
            let look = |block: &[u8]| find_slot(&layout, block, size, order);
            let (at, _) = layout.free_at(first);
            if let Some(Some(slot)) = self.peek_free(at, look)? {
                return Ok(Some(first + slot as u32));
            }
        }
        Ok(None)
    }

    /// Calls `look` with a block of the free-space index without holding it.
    fn peek_free<T>(&mut self, at: FileBlock, look: impl FnOnce(&[u8]) -> T) -> Outcome<Option<T>> {
        let view = self.view();
        let known = view.maps.as_ref().and_then(|maps| maps.get(&view.layout, at));
        if let Some(block) = known
            && !self.dir.op.txn.holds(block.0)
        {
            let tag = tag_of(DirBlockKind::Free, self.dir.ino(), at);
            return Ok(Some(look(&self.dir.op.fs.block(block, tag)?)));
        }
        Ok(self.view().with_if(at, DirBlockKind::Free, look)?)
    }
}

fn has_room(best: u16, size: usize) -> bool {
    best != NO_BLOCK && usize::from(best) >= size
}

fn find_slot(layout: &DirLayout, block: &[u8], size: usize, order: Order) -> Option<usize> {
    let fits = |slot: &[u8; 2]| has_room(u16::from_be_bytes(*slot), size);
    match order {
        Order::Forward => free::slots(layout, block).iter().position(fits),
        Order::Reverse => free::slots(layout, block).iter().rposition(fits),
        Order::ForwardDecode => {
            let mut slot = 0;
            // Without the hint the compiler would hoist the decoding out of the loop.
            while slot < std::hint::black_box(free::header(layout, block)).valid as usize {
                if has_room(free::slot(layout, block, slot), size) {
                    return Some(slot);
                }
                slot += 1;
            }
            None
        }
    }
}
