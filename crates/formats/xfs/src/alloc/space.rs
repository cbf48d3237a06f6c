//! Free space of one group: two trees that change together.

use engine::Corruption;
use operations::Outcome;
use vfs::Error;

use super::held::HeldAg;
use crate::btree::Seek;
use crate::btree::records::{BnoTree, CntTree, FreeRun};
use crate::format::address::AgBlock;

/// Number of free runs that a search examines on each side of a place, before it accepts any run that is long enough.
pub(super) const NEAR_STEPS: usize = 8;
/// Number of free runs that a search by length examines for a nearer or better aligned one.
pub(super) const LENGTH_STEPS: usize = 64;

/// A request for blocks in a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocRequest {
    /// The best place.
    pub(crate) near: AgBlock,
    /// Number of blocks.
    pub(crate) len: u32,
    /// Alignment of the first block.
    pub(crate) align: u32,
    /// First block that may be taken, and one past the last.
    pub(crate) within: (u32, u32),
}

/// Blocks that an allocation may take, and the free run that contains them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) run: FreeRun,
    pub(super) start: AgBlock,
    pub(super) len: u32,
}

impl FreeRun {
    /// Returns one past its last block.
    pub(super) fn end(&self) -> u64 {
        u64::from(self.start.0) + u64::from(self.len)
    }
}

impl AllocRequest {
    /// Requests blocks anywhere in a group, preferably at `near`.
    pub(crate) const fn near(near: AgBlock, len: u32) -> Self {
        Self { near, len, align: 1, within: (0, u32::MAX) }
    }

    /// Returns the place in `run` that is nearest to the best one.
    fn candidate_in(&self, run: FreeRun) -> Option<Candidate> {
        let align = self.align.max(1);
        let first = run.start.0.max(self.within.0).checked_next_multiple_of(align)?;
        let end = run.end().min(self.within.1.into()) as u32;
        let last = end.checked_sub(self.len)? / align * align;
        if first > last {
            return None;
        }
        // `first` and `last` are multiples of `align`, so the nearest place between them is, too.
        let best = (self.near.0 / align * align).clamp(first, last);
        Some(Candidate { run, start: AgBlock(best), len: self.len })
    }

    pub(super) fn distance(&self, candidate: &Candidate) -> u32 {
        candidate.start.0.abs_diff(self.near.0)
    }

    fn nearer(&self, a: Option<Candidate>, b: Option<Candidate>) -> Option<Candidate> {
        match (a, b) {
            (Some(a), Some(b)) if self.distance(&b) < self.distance(&a) => Some(b),
            (None, b) => b,
            (a, _) => a,
        }
    }
}

impl HeldAg<'_, '_> {
    /// Returns the error for damaged free-space trees.
    fn space_damage(&self, problem: &str, run: FreeRun) -> Error {
        let what = format!("{problem}: {} blocks from {}", run.len, run.start);
        let ag = self.number();
        Corruption::new("free space trees", what).in_group(ag.0.into()).into()
    }

    /// Checks that a run from a tree is within the group.
    pub(super) fn checked_run(&self, run: Option<FreeRun>) -> Outcome<Option<FreeRun>> {
        match run {
            Some(run) if run.len == 0 || run.end() > self.guard.length.into() => {
                Err(self.space_damage("a free extent outside the group", run).into())
            }
            run => Ok(run),
        }
    }

    /// Returns the shortest free run of at least `len` blocks, or else the longest one.
    pub(super) fn smallest_run(&mut self, len: u32) -> Outcome<Option<FreeRun>> {
        let mut cursor = self.cursor::<CntTree>();
        let mut found = cursor.seek((len, AgBlock(0)), Seek::AtLeast)?;
        if found.is_none() {
            found = cursor.seek((u32::MAX, AgBlock::NULL), Seek::AtMost)?;
        }
        self.checked_run(found)
    }

    /// Returns the longest free run.
    pub(super) fn longest_run(&mut self) -> Outcome<Option<FreeRun>> {
        self.smallest_run(u32::MAX)
    }

    /// Finds a place for all requested blocks, near the best one.
    pub(super) fn find_candidate(&mut self, request: &AllocRequest) -> Outcome<Option<Candidate>> {
        if self.guard.longest < request.len {
            return Ok(None);
        }
        if let Some(candidate) = self.find_near(request)? {
            return Ok(Some(candidate));
        }
        self.find_by_length(request)
    }

    /// Finds the nearest place among the free runs around the best one.
    fn find_near(&mut self, request: &AllocRequest) -> Outcome<Option<Candidate>> {
        let mut cursor = self.cursor::<BnoTree>();
        let mut run = cursor.seek(request.near, Seek::AtMost)?;
        let mut below = None;
        for _ in 0..NEAR_STEPS {
            below = run.and_then(|run| request.candidate_in(run));
            if below.is_some() || run.is_none() {
                break;
            }
            run = cursor.previous()?;
        }
        if let Some(candidate) =
            below.filter(|candidate| request.distance(candidate) < request.align.max(1))
        {
            return self.checked_candidate(Some(candidate));
        }
        let mut run = cursor.seek(AgBlock(request.near.0.saturating_add(1)), Seek::AtLeast)?;
        let mut above = None;
        for _ in 0..NEAR_STEPS {
            above = run.and_then(|run| request.candidate_in(run));
            if above.is_some() || run.is_none() {
                break;
            }
            run = cursor.next()?;
        }
        self.checked_candidate(request.nearer(below, above))
    }

    /// Finds a place in one of the shortest free runs that are long enough.
    fn find_by_length(&mut self, request: &AllocRequest) -> Outcome<Option<Candidate>> {
        let mut cursor = self.cursor::<CntTree>();
        let mut best = None;
        let mut run = cursor.seek((request.len, AgBlock(0)), Seek::AtLeast)?;
        for _ in 0..LENGTH_STEPS {
            let Some(found) = run else { break };
            best = request.nearer(best, request.candidate_in(found));
            run = cursor.next()?;
        }
        if best.is_none() {
            // A run of this length has an aligned place regardless of its start.
            let sure = request.len.saturating_add(request.align.saturating_sub(1));
            let run = cursor.seek((sure, AgBlock(0)), Seek::AtLeast)?;
            best = run.and_then(|run| request.candidate_in(run));
        }
        self.checked_candidate(best)
    }

    fn checked_candidate(&self, candidate: Option<Candidate>) -> Outcome<Option<Candidate>> {
        self.checked_run(candidate.map(|candidate| candidate.run))?;
        Ok(candidate)
    }

    /// Allocates blocks. The AGFL must be filled already. The caller changes the reverse map.
    pub(crate) fn take_wish(&mut self, request: &AllocRequest) -> Outcome<Option<AgBlock>> {
        let Some(candidate) = self.find_candidate(request)? else { return Ok(None) };
        self.take_space(candidate.run, candidate.start, request.len)?;
        Ok(Some(candidate.start))
    }

    /// Removes blocks from a free run, in both trees.
    pub(super) fn take_space(&mut self, run: FreeRun, start: AgBlock, len: u32) -> Outcome<()> {
        let before = start.0.checked_sub(run.start.0);
        let after = before.and_then(|before| run.len.checked_sub(before)?.checked_sub(len));
        let (Some(before), Some(after)) = (before, after) else {
            return Err(self.space_damage("a free extent is missing", run).into());
        };
        let left = FreeRun { start: run.start, len: before };
        let right = FreeRun { start: AgBlock(start.0 + len), len: after };
        self.replace_by_block(run, left, right)?;
        let (kept, added) = if before > 0 { (left, right) } else { (right, left) };
        self.replace_by_length(run, kept)?;
        if added.len > 0 {
            self.cursor::<CntTree>().insert(added)?;
        }
        if run.len == self.guard.longest {
            let longest = self.longest_run()?.map_or(0, |run| run.len);
            self.guard.longest = longest;
        }
        self.count_free(run, -i64::from(len))
    }

    /// Replaces a run in the by-block tree with its remaining parts at both ends.
    fn replace_by_block(&mut self, run: FreeRun, left: FreeRun, right: FreeRun) -> Outcome<()> {
        let mut cursor = self.cursor::<BnoTree>();
        if cursor.seek(run.start, Seek::Exactly)? != Some(run) {
            return Err(self.space_damage("not in the tree by block", run).into());
        }
        match (left.len > 0, right.len > 0) {
            (false, false) => cursor.remove(),
            (false, true) => cursor.update(right),
            (true, false) => cursor.update(left),
            (true, true) => {
                cursor.update(left)?;
                cursor.insert(right)
            }
        }
    }

    /// Replaces a run in the tree by length, or removes it if the new run is empty. If the order permits, the record is
    /// changed in place, which is the common case for the long run that allocations take from.
    fn replace_by_length(&mut self, run: FreeRun, by: FreeRun) -> Outcome<()> {
        let key = |run: &FreeRun| (run.len, run.start);
        let mut cursor = self.cursor::<CntTree>();
        if cursor.seek(key(&run), Seek::Exactly)? != Some(run) {
            return Err(self.space_damage("not in the tree by length", run).into());
        }
        if by.len == 0 {
            return cursor.remove();
        }
        let grows = key(&by) > key(&run);
        let neighbour = if grows { cursor.next()? } else { cursor.previous()? };
        let fits =
            neighbour.is_none_or(|n| if grows { key(&n) > key(&by) } else { key(&n) < key(&by) });
        cursor.seek(key(&run), Seek::Exactly)?;
        if fits {
            return cursor.update(by);
        }
        cursor.remove()?;
        cursor.insert(by)
    }

    /// Frees blocks in both trees, joined with adjacent free runs. Blocks that are already free are damage.
    pub(super) fn give_space(&mut self, start: AgBlock, len: u32) -> Outcome<()> {
        let given = FreeRun { start, len };
        self.checked_run(Some(given))?;
        let mut cursor = self.cursor::<BnoTree>();
        let left = cursor.seek(start, Seek::AtMost)?;
        let right =
            if left.is_some() { cursor.next()? } else { cursor.seek(start, Seek::AtLeast)? };
        let overlaps = left.is_some_and(|left| left.end() > start.0.into())
            || right.is_some_and(|right| u64::from(right.start.0) < given.end());
        if overlaps {
            return Err(self.space_damage("freed blocks are already free", given).into());
        }
        let left = left.filter(|left| left.end() == u64::from(start.0));
        let right = right.filter(|right| u64::from(right.start.0) == given.end());
        let merged = FreeRun {
            start: left.map_or(start, |left| left.start),
            len: len + left.map_or(0, |run| run.len) + right.map_or(0, |run| run.len),
        };
        self.merge_by_block(left, right, merged)?;
        self.merge_by_length(left, right, merged)?;
        self.guard.longest = self.guard.longest.max(merged.len);
        self.make_busy(start, len);
        self.count_free(given, len.into())
    }

    fn merge_by_block(
        &mut self,
        left: Option<FreeRun>,
        right: Option<FreeRun>,
        merged: FreeRun,
    ) -> Outcome<()> {
        let mut cursor = self.cursor::<BnoTree>();
        let Some(kept) = left.or(right) else { return cursor.insert(merged) };
        if let (Some(_), Some(right)) = (left, right) {
            cursor.seek(right.start, Seek::Exactly)?;
            cursor.remove()?;
        }
        cursor.seek(kept.start, Seek::Exactly)?;
        cursor.update(merged)
    }

    fn merge_by_length(
        &mut self,
        left: Option<FreeRun>,
        right: Option<FreeRun>,
        merged: FreeRun,
    ) -> Outcome<()> {
        if let (Some(left), Some(right)) = (left, right) {
            let (short, long) = if left.len < right.len { (left, right) } else { (right, left) };
            self.replace_by_length(short, FreeRun { len: 0, ..short })?;
            return self.replace_by_length(long, merged);
        }
        match left.or(right) {
            Some(kept) => self.replace_by_length(kept, merged),
            None => self.cursor::<CntTree>().insert(merged),
        }
    }

    /// Changes the count of free blocks by `change`.
    fn count_free(&mut self, run: FreeRun, change: i64) -> Outcome<()> {
        let state = &mut *self.guard;
        let count = u32::try_from(i64::from(state.freeblks) + change).ok();
        let Some(count) = count.filter(|count| *count <= state.length) else {
            return Err(self.space_damage("the AGF has another free block count", run).into());
        };
        state.freeblks = count;
        Ok(())
    }
}
