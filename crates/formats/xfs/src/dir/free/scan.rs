//! Scanning the free-space index on disk.

use operations::Outcome;

use super::Bests;
use crate::dir::node::NodeChange;
use crate::format::dir::Layout;
use crate::format::dir::free::{self, NO_BLOCK};

/// Direction of a scan of the free-space index.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// From the first slot on, decoding the header for each slot.
    ForwardDecode,
    Forward,
    Reverse,
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
}

fn has_room(best: u16, size: usize) -> bool {
    best != NO_BLOCK && usize::from(best) >= size
}

fn find_slot(layout: &Layout, block: &[u8], size: usize, order: Order) -> Option<usize> {
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
