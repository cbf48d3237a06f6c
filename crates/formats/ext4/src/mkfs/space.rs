//! Blocks of the planned file system that are in use, as runs.
//!
//! Runs neither overlap nor touch, so their number depends on the structure of the layout, not on the size of the
//! image.

use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks in use.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    /// Start of each run to its end.
    taken: BTreeMap<u64, u64>,
    /// Range of allocatable blocks.
    blocks: Range<u64>,
    /// Unit of allocation in blocks: one cluster.
    unit: u64,
}

impl Space {
    /// Returns a space in which all of `blocks` is free.
    pub(crate) fn new(blocks: Range<u64>) -> Self {
        Self { taken: BTreeMap::new(), blocks, unit: 1 }
    }

    /// Allocates whole clusters of `unit` blocks from now on, and fills up clusters that are partly in use.
    pub(super) fn use_clusters(&mut self, unit: u64) {
        self.unit = unit;
        if unit == 1 {
            return;
        }
        for (start, end) in std::mem::take(&mut self.taken) {
            self.take_rest(start..end);
        }
    }

    /// Allocates the free parts of a run's clusters.
    fn take_rest(&mut self, run: Range<u64>) {
        let run = self.whole(run);
        for free in self.free_runs(run).collect::<Vec<_>>() {
            self.take(free);
        }
    }

    /// Returns the first block of a block's cluster.
    pub(super) fn aligned(&self, block: u64) -> u64 {
        block / self.unit * self.unit
    }

    /// Returns the clusters that a run touches, as blocks.
    fn whole(&self, run: Range<u64>) -> Range<u64> {
        run.start / self.unit * self.unit..run.end.next_multiple_of(self.unit)
    }

    /// Allocates a free run.
    pub(crate) fn take(&mut self, run: Range<u64>) {
        if run.is_empty() {
            return;
        }
        let run = self.whole(run);
        debug_assert_eq!(self.taken_in(run.clone()), 0, "{run:?} is partly in use");
        let (mut start, mut end) = (run.start, run.end);
        if let Some((&before, &before_end)) = self.taken.range(..start).next_back()
            && before_end == start
        {
            start = before;
        }
        if let Some(after_end) = self.taken.remove(&end) {
            end = after_end;
        }
        self.taken.insert(start, end);
    }

    /// Iterates over the free runs inside `within`, in order.
    pub(super) fn free_runs(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let end = within.end.min(self.blocks.end);
        let mut at = within.start.max(self.blocks.start);
        std::iter::from_fn(move || {
            while at < end {
                let before = self.taken.range(..=at).next_back().map_or(0, |(_, &end)| end);
                at = at.max(before);
                let next = self.taken.range(at..).next().map_or(end, |(&start, _)| start.min(end));
                if at < next {
                    let run = at..next;
                    at = next;
                    return Some(run);
                }
                if at >= end {
                    break;
                }
            }
            None
        })
    }

    /// Iterates over the runs in use inside `within`, clipped to it, in order.
    pub(crate) fn taken_runs(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let Range { start, end } = within;
        let before = self.taken.range(..start).next_back().filter(|(_, e)| **e > start);
        let first = before.map_or(start, |(&s, _)| s);
        self.taken.range(first..end.max(first)).map(move |(&s, &e)| s.max(start)..e.min(end))
    }

    /// Returns the number of blocks in use inside `within`.
    pub(crate) fn taken_in(&self, within: Range<u64>) -> u64 {
        self.taken_runs(within).map(|run| run.end - run.start).sum()
    }

    /// Allocates `len` contiguous blocks: the first that are free from `goal` on, or else from the start.
    pub(crate) fn take_run(&mut self, goal: u64, len: u64) -> Option<u64> {
        let fits = |run: &Range<u64>| run.end - run.start >= len;
        let Range { start, end } = self.blocks;
        let found = self.free_runs(goal..end).find(fits);
        let run = found.or_else(|| self.free_runs(start..end).find(fits))?;
        self.take(run.start..run.start + len);
        Some(run.start)
    }

    /// Allocates `len` blocks in as many pieces as necessary: first free blocks from `goal` on, then from the start.
    /// Allocates nothing if there are not enough.
    pub(super) fn take_pieces(&mut self, goal: u64, len: u64) -> Option<Vec<Range<u64>>> {
        let mut left = len;
        let mut pieces = Vec::new();
        let Range { start, end } = self.blocks;
        let goal = goal.clamp(start, end);
        for run in self.free_runs(goal..end).chain(self.free_runs(start..goal)) {
            if left == 0 {
                break;
            }
            let taken = left.min(run.end - run.start);
            pieces.push(run.start..run.start + taken);
            left -= taken;
        }
        if left > 0 {
            return None;
        }
        for piece in &pieces {
            self.take(piece.clone());
        }
        Some(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_and_are_found_again() {
        let mut space = Space::new(1..100);
        space.take(10..20);
        space.take(30..40);
        space.take(20..30);
        assert_eq!(space.taken.len(), 1);
        assert_eq!(space.taken_in(15..35), 20);
        assert_eq!(space.taken_in(0..100), 30);
        assert_eq!(space.free_runs(0..200).collect::<Vec<_>>(), [1..10, 40..100]);
        assert_eq!(space.take_run(0, 10), Some(40));
        assert_eq!(space.take_run(95, 9), Some(1));
        assert_eq!(space.take_run(0, 51), None);
    }

    #[test]
    fn clusters_are_taken_whole() {
        let mut space = Space::new(0..96);
        space.take(0..10);
        space.take(12..17);
        space.use_clusters(16);
        assert!(space.free_runs(0..96).eq(std::iter::once(32..96)));
        assert_eq!(space.take_run(0, 1), Some(32));
        assert!(space.take_pieces(0, 17).unwrap().into_iter().eq(std::iter::once(48..65)));
        assert_eq!(space.taken_in(0..96), 80);
    }

    #[test]
    fn pieces_wrap_around() {
        let mut space = Space::new(0..100);
        space.take(50..60);
        assert_eq!(space.take_pieces(40, 55).unwrap(), [40..50, 60..100, 0..5]);
        assert_eq!(space.take_pieces(0, 36), None);
        assert_eq!(space.take_pieces(0, 35).unwrap().first(), Some(&(5..40)));
    }
}
