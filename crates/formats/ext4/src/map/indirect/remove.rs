//! Unmapping part of a file with a block map.

use operations::Outcome;
use std::ops::Range;

use super::BlockMap;
use super::{Holder, slots_range};
use crate::format::address::Block;
use crate::format::indirect::{DIRECT_COUNT, LEVELS_MAX, pointer};

/// A contiguous part of the pointers of a map.
#[derive(Clone, Copy)]
struct PointerRange {
    holder: Holder,
    /// First slot and number of slots.
    slot: u16,
    slots: u32,
    /// Number of levels of pointer blocks between these pointers and the data.
    levels: usize,
    /// File block of the first pointer.
    base: u64,
}

impl BlockMap<'_, '_> {
    /// Implements [`Op::remove_blocks`] for a file with a block map.
    pub(crate) fn remove(&mut self, range: Range<u64>, budget: &mut u32) -> Outcome<bool> {
        for part in self.parts().into_iter().rev() {
            if !self.remove_part(part, &range, budget)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the parts in `i_block`: the direct pointers, and one pointer per number of levels.
    fn parts(&self) -> [PointerRange; LEVELS_MAX + 1] {
        let direct =
            PointerRange { holder: None, slot: 0, slots: DIRECT_COUNT, levels: 0, base: 0 };
        let mut parts = [direct; LEVELS_MAX + 1];
        let mut base = u64::from(DIRECT_COUNT);
        for (at, part) in parts.iter_mut().enumerate().skip(1) {
            let slot = DIRECT_COUNT as u16 + at as u16 - 1;
            *part = PointerRange { slot, slots: 1, levels: at, base, ..direct };
            base += self.span(at);
        }
        parts
    }

    /// Returns the number of file blocks below a pointer with `levels` levels.
    fn span(&self, levels: usize) -> u64 {
        let pointers_log = (self.op.fs.volume.geometry.block_size() / 4).ilog2();
        1 << (pointers_log * levels as u32)
    }

    /// Removes the intersection of a part and the range. Returns `false` if the budget was too small.
    fn remove_part(
        &mut self,
        part: PointerRange,
        range: &Range<u64>,
        budget: &mut u32,
    ) -> Outcome<bool> {
        let span = self.span(part.levels);
        // Slots whose blocks intersect the range.
        let first = range.start.saturating_sub(part.base) / span;
        let mut end = range.end.saturating_sub(part.base).div_ceil(span).min(part.slots.into());
        while end > first {
            let slot = part.slot + (end - 1) as u16;
            let Some(block) = pointer(self.pointers(part.holder), slot) else {
                end -= 1;
                continue;
            };
            if *budget == 0 {
                return Ok(false);
            }
            if part.levels == 0 {
                end = self.remove_run(part, first..end, budget)?;
                continue;
            }
            let base = part.base + (end - 1) * span;
            if !self.remove_below(part, (slot, block, base), range, budget)? {
                return Ok(false);
            }
            end -= 1;
        }
        Ok(true)
    }

    /// Removes the blocks below one pointer, and the pointer if no block is left.
    fn remove_below(
        &mut self,
        part: PointerRange,
        (slot, block, base): (u16, Block, u64),
        range: &Range<u64>,
        budget: &mut u32,
    ) -> Outcome<bool> {
        let id = self.enter_pointers(block)?;
        let slots = self.op.fs.volume.block_size() as u32 / 4;
        let below =
            PointerRange { holder: Some(id), slot: 0, slots, levels: part.levels - 1, base };
        let done = self.remove_part(below, range, budget)?;
        *budget = budget.saturating_sub(1);
        if self.op.txn.data(id).iter().all(|&byte| byte == 0) {
            self.edit_pointers(part.holder, slots_range(slot, 1)).fill(0);
            self.op.free_metadata(self.file, block)?;
        }
        Ok(done)
    }

    /// Frees the run of data at the end of some slots. Returns the end of the remaining slots.
    fn remove_run(
        &mut self,
        part: PointerRange,
        slots: Range<u64>,
        budget: &mut u32,
    ) -> Outcome<u64> {
        let pointers = self.pointers(part.holder);
        let at = |slot: u64| pointer(pointers, part.slot + slot as u16);
        let last = at(slots.end - 1);
        let len_max = self.op.freed_at_once(self.file, *budget);
        let mut len = 1_u32;
        let is_before = |len: u32| {
            let slot = slots.end - 1 - u64::from(len);
            at(slot).map(|block| block.plus(u64::from(len))) == last
        };
        while len < len_max && slots.start + u64::from(len) < slots.end && is_before(len) {
            len += 1;
        }
        let start = Block(last.unwrap_or_default().0 - u64::from(len - 1));
        let from = slots.end - u64::from(len);
        let range = slots_range(part.slot + from as u16, len);
        self.edit_pointers(part.holder, range).fill(0);
        *budget = budget.saturating_sub(self.op.free_data(self.file, start, len)?);
        Ok(from)
    }
}
