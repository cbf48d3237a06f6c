//! Finding runs of free realtime extents.
//!
//! The best place is tried first, then the rest of its block of the bitmap. The summary leads to long runs elsewhere.

use std::ops::Range;
use std::sync::atomic::Ordering;

use operations::Outcome;

use super::HeldRealtime;
use crate::alloc::busy::BusyView;
use crate::format::realtime::space::{SpaceFile, WORD_BITS};

/// Maximum number of blocks of the bitmap that a search examines at each level of the summary.
const BLOCKS_MAX: usize = 16;

/// Returns the number of the first bit of `word` from bit `from` on that is set; 32 if none is.
const fn first_set(word: u32, from: u32) -> u32 {
    (word & (u32::MAX << from)).trailing_zeros()
}

impl HeldRealtime<'_, '_> {
    /// Returns a run of at most `max_len` free extents that are not busy: `max_len` if possible, near `near`.
    pub(super) fn find(&mut self, near: u64, max_len: u64) -> Outcome<Option<Range<u64>>> {
        let extents = self.space.layout.extents();
        let near = if near < extents { near } else { 0 };
        let max_len = max_len.min(extents);
        let per_block = self.space.layout.extents_per_block();
        let block_end = (near / per_block + 1) * per_block;
        let mut best = self.find_within(near..block_end.min(extents), max_len)?;
        let is_enough = |best: &Option<Range<u64>>| {
            best.as_ref().is_some_and(|run| run.end - run.start >= max_len)
        };
        if is_enough(&best) {
            return Ok(best);
        }
        let wanted = max_len.next_power_of_two().ilog2();
        let levels = self.space.layout.levels();
        // Runs of these levels are long enough unless they are busy. The others are tried from the longest on.
        for level in (wanted..levels).chain((0..wanted.min(levels)).rev()) {
            for at in self.blocks_with_runs(level, near / per_block)? {
                let start = at * per_block;
                let found = self.find_within(start..(start + per_block).min(extents), max_len)?;
                let len = |run: &Option<Range<u64>>| run.as_ref().map_or(0, |it| it.end - it.start);
                if len(&found) > len(&best) {
                    best = found;
                }
                if is_enough(&best) {
                    return Ok(best);
                }
            }
            // Runs of lower levels are shorter than this.
            let is_best = best.as_ref().is_some_and(|run| run.end - run.start >= 1 << level);
            if level < wanted && is_best {
                break;
            }
        }
        Ok(best)
    }

    /// Returns the first run of `max_len` free extents that starts in a range, or else the longest one. It may end
    /// after the range.
    fn find_within(&mut self, range: Range<u64>, max_len: u64) -> Outcome<Option<Range<u64>>> {
        let extents = self.space.layout.extents();
        let (mut at, mut best): (u64, Option<Range<u64>>) = (range.start, None);
        while at < range.end {
            let start = self.next(at..range.end, true)?;
            if start >= range.end {
                break;
            }
            // Busy parts may be skipped, so that a longer run is needed.
            let has_busy = !self.busy().is_empty();
            let limit = if has_busy { extents } else { extents.min(start.saturating_add(max_len)) };
            let end = self.next(start..limit, false)?;
            let run = start as u32..end as u32;
            for clean in self.busy().clean_parts(run) {
                let clean = u64::from(clean.start)..u64::from(clean.end);
                let clean = clean.start..clean.end.min(clean.start + max_len);
                let len = clean.end - clean.start;
                if best.as_ref().is_none_or(|best| len > best.end - best.start) {
                    best = Some(clean);
                }
                if len >= max_len {
                    return Ok(best);
                }
            }
            at = end.max(start + 1);
        }
        Ok(best)
    }

    /// Returns the extents that must not be used yet.
    pub(super) fn busy(&self) -> BusyView<'_> {
        let guard = &self.op.group_guards[self.group];
        BusyView { busy: guard.busy_set(), freed: guard.own_busy() }
    }

    /// Returns some blocks of the bitmap in which runs of a level start, first those from `near` on.
    fn blocks_with_runs(&mut self, level: u32, near: u64) -> Outcome<Vec<u64>> {
        let layout = self.space.layout;
        let (blocks, per_block) = (layout.bitmap_blocks(), layout.words_per_block());
        let first = u64::from(level) * blocks;
        let mut found = Vec::new();
        for part in [near.min(blocks)..blocks, 0..near.min(blocks)] {
            let words = first + part.start..first + part.end;
            let mut at = words.start;
            while at < words.end && found.len() < BLOCKS_MAX {
                let end = words.end.min((at / per_block + 1) * per_block);
                self.look(SpaceFile::Summary, at / per_block, |bytes| {
                    for word in at..end {
                        if layout.word(bytes, (word % per_block) as usize) > 0 {
                            found.push(word - first);
                        }
                    }
                })?;
                at = end;
            }
        }
        found.truncate(BLOCKS_MAX);
        Ok(found)
    }

    /// Returns the first extent of a range that is free, or in use; its end if there is none.
    fn next(&mut self, range: Range<u64>, is_free: bool) -> Outcome<u64> {
        let layout = self.space.layout;
        let (per_block, words_per_block) = (layout.extents_per_block(), layout.words_per_block());
        let mut at = range.start;
        while at < range.end {
            let block = at / per_block;
            let end = range.end.min((block + 1) * per_block);
            if !is_free && self.space.is_free[block as usize].load(Ordering::Relaxed) == 1 {
                at = end;
                continue;
            }
            let is_start = at == block * per_block;
            let found = self.look(SpaceFile::Bitmap, block, |bytes| {
                let mut from = (at % WORD_BITS) as u32;
                for word in at / WORD_BITS..end.div_ceil(WORD_BITS) {
                    let bits = layout.word(bytes, (word % words_per_block) as usize);
                    let bits = if is_free { bits } else { !bits };
                    let bit = first_set(bits, from);
                    if bit < u32::BITS {
                        return Some(word * WORD_BITS + u64::from(bit));
                    }
                    from = 0;
                }
                None
            })?;
            if let Some(found) = found {
                return Ok(found.min(range.end));
            }
            // A change of this operation may be undone.
            let is_changed = {
                let (place, _) = self.space.place(SpaceFile::Bitmap, block)?;
                self.op.realtime_blocks.contains(&place.0)
            };
            if !is_free && !is_changed && is_start && end == (block + 1) * per_block {
                self.space.is_free[block as usize].store(1, Ordering::Relaxed);
            }
            at = end;
        }
        Ok(range.end)
    }

    /// Returns the start of the run of free extents that ends at `at`; `at` if the extent before is in use.
    fn start_of_run(&mut self, at: u64) -> Outcome<u64> {
        let layout = self.space.layout;
        let (per_block, words_per_block) = (layout.extents_per_block(), layout.words_per_block());
        let mut end = at;
        while end > 0 {
            let block = (end - 1) / per_block;
            let start = block * per_block;
            if self.space.is_free[block as usize].load(Ordering::Relaxed) == 1 {
                end = start;
                continue;
            }
            let found = self.look(SpaceFile::Bitmap, block, |bytes| {
                let mut high = ((end - 1) % WORD_BITS) as u32;
                for word in (start / WORD_BITS..end.div_ceil(WORD_BITS)).rev() {
                    let used = !layout.word(bytes, (word % words_per_block) as usize);
                    let below = used & (u32::MAX >> (u32::BITS - 1 - high));
                    if below != 0 {
                        let bit = u32::BITS - 1 - below.leading_zeros();
                        return Some(word * WORD_BITS + u64::from(bit) + 1);
                    }
                    high = u32::BITS - 1;
                }
                None
            })?;
            match found {
                Some(found) => return Ok(found),
                None => end = start,
            }
        }
        Ok(0)
    }

    /// Returns a run extended by the free extents before and after it.
    pub(super) fn free_run_around(&mut self, run: &Range<u64>) -> Outcome<Range<u64>> {
        let start = self.start_of_run(run.start)?;
        let end = self.next(run.end..self.space.layout.extents(), false)?;
        Ok(start..end)
    }
}
