//! Free blocks, and the states of the blocks of deleted files.

use std::ops::ControlFlow;

use vfs::check::BitSet;
use vfs::deleted::DeletedRun;
use vfs::survey::{BlockUse, Extent, FileLayout, Sink, TellsLayout};

use super::BlockStates;

/// Returns the free blocks of a file system.
pub(super) fn free_blocks(fs: &dyn TellsLayout, blocks: u64) -> BitSet {
    let mut survey = FreeSurvey(BitSet::new(blocks));
    fs.tell_layout(&mut survey);
    survey.0
}

struct FreeSurvey(BitSet);

impl Sink for FreeSurvey {
    fn extent(&mut self, Extent { start, len, kind }: Extent) {
        if kind == BlockUse::Free {
            self.0.insert_range(start..start.saturating_add(len), |_| {});
        }
    }

    fn file(&mut self, _: FileLayout) {}

    fn remark(&mut self, _: String) {}

    /// Stops after the first of two passes: free blocks are in it.
    fn progress(&mut self, done: u64, total: u64) -> ControlFlow<()> {
        if done.saturating_mul(2) >= total {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Counter of the blocks of deleted files, which are passed latest first.
pub(super) struct BlockCounter<'f> {
    free: &'f BitSet,
    /// Free blocks of files passed before.
    claimed: BitSet,
    /// Number of blocks that may still be counted.
    budget: u64,
}

/// Number of times that the blocks of an image are counted. Only damaged images have more deleted files than that on the
/// same blocks.
const ROUNDS_MAX: u64 = 64;

impl<'f> BlockCounter<'f> {
    pub(super) fn new(free: &'f BitSet, blocks: u64) -> Self {
        Self { free, claimed: BitSet::new(blocks), budget: blocks.saturating_mul(ROUNDS_MAX) }
    }

    /// Counts the blocks of a file. With `is_owner`, the file still owns its blocks.
    pub(super) fn count(&mut self, runs: &[DeletedRun], is_owner: bool) -> BlockStates {
        let mut states = BlockStates::default();
        for run in runs {
            let Some(left) = self.budget.checked_sub(run.len) else {
                states.is_uncounted = true;
                break;
            };
            self.budget = left;
            let range = run.start..run.start.saturating_add(run.len);
            if is_owner {
                states.free += run.len;
                continue;
            }
            let free = self.free.count(range.clone());
            states.in_use += run.len - free.min(run.len);
            let mut reused = 0;
            self.claimed.insert_range(range, |block| {
                reused += u64::from(self.free.contains(block));
            });
            states.reused += reused;
            states.free += free.saturating_sub(reused);
        }
        states
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_later_file_are_reused() {
        let free = BitSet::new(100);
        free.insert_range(10..20, |_| {});
        let mut counter = BlockCounter::new(&free, 100);
        let run = |start, len| DeletedRun { first: 0, start, len, unwritten: false };
        let later = counter.count(&[run(10, 4)], false);
        assert_eq!(later, BlockStates { free: 4, ..BlockStates::default() });
        let earlier = counter.count(&[run(12, 10)], false);
        assert_eq!(
            earlier,
            BlockStates { free: 6, in_use: 2, reused: 2, ..BlockStates::default() }
        );
        let own = counter.count(&[run(50, 3)], true);
        assert_eq!(own, BlockStates { free: 3, ..BlockStates::default() });
    }
}
