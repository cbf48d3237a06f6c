//! Blocks that were freed, but must not be used for file data yet.
//!
//! Data goes straight to the device. Until the checkpoint that freed a block is durable, a crash returns the block to
//! its previous file, so no data may be written to it before. Metadata may reuse such a block at once: it is written
//! back only after its own checkpoint is durable, which is the same or a later one. Without a log no block is busy.

use std::collections::BTreeMap;
use std::ops::Range;

use operations::groups::Busy;

/// Maximum number of busy runs skipped in one free run, in search of a place between them.
const RUNS_PASSED_MAX: usize = 64;

/// Busy blocks of a group. Each is free, or already reused for metadata.
#[derive(Default)]
pub(crate) struct BusyBlocks {
    /// Freed in the running checkpoint.
    running: Runs,
    /// Freed in the checkpoint being written.
    closed: Runs,
}

/// Runs of blocks that neither overlap nor adjoin: a map from start to end.
#[derive(Default)]
struct Runs(BTreeMap<u32, u32>);

impl BusyBlocks {
    fn is_empty(&self) -> bool {
        self.running.0.is_empty() && self.closed.0.is_empty()
    }
}

/// An operation's freed blocks join the set only when it commits, because merged runs could not be separated again on
/// failure. Until then [`BusyView`] combines both.
impl Busy for BusyBlocks {
    fn add(&mut self, _: &Range<u32>) {}

    fn take_back(&mut self, _: &[Range<u32>]) {}

    fn keep(&mut self, freed: &[Range<u32>]) {
        freed.iter().for_each(|run| self.running.insert(run.clone()));
    }

    fn close(&mut self) {
        let running = std::mem::take(&mut self.running);
        if self.closed.0.is_empty() {
            self.closed = running;
        } else {
            running.0.into_iter().for_each(|(start, end)| self.closed.insert(start..end));
        }
    }

    fn release(&mut self) {
        self.closed = Runs::default();
    }
}

impl Runs {
    fn insert(&mut self, mut run: Range<u32>) {
        if run.is_empty() {
            return;
        }
        // All runs that overlap or adjoin become one.
        while let Some((&start, &end)) = self.0.range(..=run.end).next_back() {
            if end < run.start {
                break;
            }
            self.0.remove(&start);
            run = run.start.min(start)..run.end.max(end);
        }
        self.0.insert(run.start, run.end);
    }

    /// Returns the run that contains a block, or else the first run after it.
    fn at_or_after(&self, at: u32) -> Option<Range<u32>> {
        let before = self.0.range(..=at).next_back().filter(|&(_, &end)| end > at);
        let found = before.or_else(|| self.0.range(at..).next());
        found.map(|(&start, &end)| start..end)
    }
}

/// All busy blocks of a group as seen by the operation that holds it, including those it has freed.
pub(crate) struct BusyView<'b> {
    pub(super) busy: &'b BusyBlocks,
    /// Blocks freed by the operation itself.
    pub(super) freed: &'b [Range<u32>],
}

impl BusyView<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.freed.is_empty() && self.busy.is_empty()
    }

    /// Returns the busy run that contains a block, or else the first run after it. Another run may continue it.
    fn at_or_after(&self, at: u32) -> Option<Range<u32>> {
        let freed = self.freed.iter().filter(|run| run.end > at).cloned();
        let noted = [&self.busy.running, &self.busy.closed];
        let noted = noted.into_iter().filter_map(|runs| runs.at_or_after(at));
        freed.chain(noted).min_by_key(|run| run.start)
    }

    /// Returns the first few runs within `free` that are not busy.
    pub(super) fn clean_parts(&self, free: Range<u32>) -> impl Iterator<Item = Range<u32>> {
        let mut at = free.start;
        let next = move |_| {
            if at >= free.end {
                return None;
            }
            let busy = self.at_or_after(at).unwrap_or(free.end..free.end);
            let clean = at..busy.start.min(free.end);
            at = busy.end;
            Some(clean)
        };
        (0..RUNS_PASSED_MAX).map_while(next).filter(|clean| !clean.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    fn view_of<'b>(busy: &'b BusyBlocks, freed: &'b [Range<u32>]) -> BusyView<'b> {
        BusyView { busy, freed }
    }

    #[test]
    fn clean_parts_are_what_no_set_has() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..500 {
            let mut busy = BusyBlocks::default();
            let mut is_busy = [false; 64];
            let mut run = |rng: &mut fastrand::Rng| {
                let start = rng.u32(..60);
                let end = start + rng.u32(1..=4);
                (start..end).for_each(|at| is_busy[at as usize] = true);
                start..end
            };
            for closes in [true, false] {
                for _ in 0..rng.usize(..6) {
                    busy.keep(from_ref(&run(&mut rng)));
                }
                if closes {
                    busy.close();
                }
            }
            let freed: Vec<_> = (0..rng.usize(..4)).map(|_| run(&mut rng)).collect();
            let free = rng.u32(..32)..rng.u32(32..=64);
            let parts: Vec<_> = view_of(&busy, &freed).clean_parts(free.clone()).collect();
            let mut found = [false; 64];
            for part in parts {
                part.for_each(|at| found[at as usize] = true);
            }
            for at in 0..64_u32 {
                let expected = free.contains(&at) && !is_busy[at as usize];
                assert_eq!(found[at as usize], expected, "block {at} of {free:?}");
            }
        }
    }

    #[test]
    fn a_checkpoint_releases_what_was_freed_before_it_was_closed() {
        let mut busy = BusyBlocks::default();
        busy.keep(from_ref(&(5..7)));
        busy.keep(from_ref(&(7..9)));
        busy.close();
        busy.keep(from_ref(&(20..21)));
        let clean = |busy: &BusyBlocks| view_of(busy, &[]).clean_parts(0..30).collect::<Vec<_>>();
        assert_eq!(clean(&busy), [0..5, 9..20, 21..30]);
        busy.release();
        assert_eq!(clean(&busy), [0..20, 21..30]);
        busy.close();
        busy.release();
        assert!(busy.is_empty());
    }

    #[test]
    fn runs_that_meet_become_one() {
        let mut runs = Runs::default();
        for run in [10..12, 14..16, 12..14, 30..31, 5..40] {
            runs.insert(run);
        }
        assert_eq!(runs.0.into_iter().collect::<Vec<_>>(), [(5, 40)]);
    }
}
