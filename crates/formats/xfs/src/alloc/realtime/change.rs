//! Reading and changing bits of the bitmap and counters of the summary.

use std::ops::Range;
use std::sync::atomic::Ordering;

use engine::Corruption;
use operations::Outcome;
use vfs::{Error, Result};

use super::HeldRealtime;
use crate::format::realtime::space::{SpaceFile, WORD_BITS};

/// Returns the bits of word `word` that belong to extents in `range`.
fn mask(word: u64, range: &Range<u64>) -> u32 {
    let first = word * WORD_BITS;
    let low = range.start.saturating_sub(first).min(WORD_BITS);
    let high = range.end.saturating_sub(first).min(WORD_BITS);
    let below = |bits: u64| ((1_u64 << bits) - 1) as u32;
    below(high) & !below(low)
}

impl HeldRealtime<'_, '_> {
    /// Calls `look` with a block of a file. Blocks that the operation has not changed are not held.
    pub(super) fn look<T>(
        &mut self,
        file: SpaceFile,
        at: u64,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let (place, tag) = self.space.place(file, at)?;
        if self.op.realtime_blocks.contains(&place.0) {
            let id = self.op.buffer(place, tag)?;
            return Ok(look(self.op.txn.data(id)));
        }
        Ok(look(&self.op.fs.block(place, tag)?))
    }

    /// Changes words of a block of a file. `change` receives each word and its number in the block.
    fn change(
        &mut self,
        file: SpaceFile,
        at: u64,
        words: Range<usize>,
        mut change: impl FnMut(usize, u32) -> u32,
    ) -> Result<()> {
        let (place, tag) = self.space.place(file, at)?;
        if !self.op.realtime_blocks.contains(&place.0) {
            self.op.realtime_blocks.push(place.0);
        }
        let id = self.op.buffer(place, tag)?;
        let first = words.start;
        let bytes = self.op.txn.edit(id, self.space.layout.bytes_of(words));
        self.space.layout.change(bytes, |nth, word| change(first + nth, word));
        Ok(())
    }

    /// Sets the bits of extents, which must all have the other value.
    pub(super) fn set(&mut self, extents: Range<u64>, is_free: bool) -> Outcome<()> {
        let per_block = self.space.layout.words_per_block();
        let words = extents.start / WORD_BITS..extents.end.div_ceil(WORD_BITS);
        for at in words.start / per_block..words.end.div_ceil(per_block) {
            let first = at * per_block;
            let within = words.start.max(first) - first..words.end.min(first + per_block) - first;
            // Unknown from now on, also if the operation fails.
            self.space.is_free[at as usize].store(0, Ordering::Relaxed);
            let mut is_wrong = false;
            let within = within.start as usize..within.end as usize;
            self.change(SpaceFile::Bitmap, at, within, |nth, word| {
                let bits = mask(first + nth as u64, &extents);
                is_wrong |= word & bits != if is_free { 0 } else { bits };
                if is_free { word | bits } else { word & !bits }
            })?;
            if is_wrong {
                let expected = if is_free { "extents in use" } else { "free extents" };
                let found = format_args!("others within {extents:?}").to_string();
                let damage = Corruption::new(SpaceFile::Bitmap.name(), "state of extents");
                return Err(Error::from(damage.mismatch(expected, found)).into());
            }
        }
        Ok(())
    }

    /// Adds `change` to the counter of a run of free extents. Does nothing for an empty run.
    pub(super) fn count_run(&mut self, run: Range<u64>, change: i32) -> Outcome<()> {
        if run.is_empty() {
            return Ok(());
        }
        let layout = self.space.layout;
        let counter = layout.counter_of(run.start, run.end - run.start);
        let (at, nth) = (counter / layout.words_per_block(), counter % layout.words_per_block());
        let (nth, mut is_wrong) = (nth as usize, false);
        self.change(SpaceFile::Summary, at, nth..nth + 1, |_, count| {
            count.checked_add_signed(change).unwrap_or_else(|| {
                is_wrong = true;
                count
            })
        })?;
        if is_wrong {
            let found = format_args!("none for the run {run:?}").to_string();
            let damage = Corruption::new(SpaceFile::Summary.name(), "number of free runs");
            return Err(Error::from(damage.mismatch("one in the bitmap", found)).into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_cover_the_extents_of_a_word() {
        assert_eq!(mask(0, &(0..32)), u32::MAX);
        assert_eq!(mask(0, &(3..5)), 0b11000);
        assert_eq!(mask(1, &(3..33)), 1);
        assert_eq!(mask(2, &(3..33)), 0);
        assert_eq!(mask(0, &(40..50)), 0);
    }
}
