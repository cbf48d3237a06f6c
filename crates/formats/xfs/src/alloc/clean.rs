//! Finding places for file data in free runs that are partly busy.
//!
//! A search examines a limited number of runs, and of places in each. Missed places become available when a checkpoint
//! makes the busy blocks usable; an operation that runs out of space waits for that.

use operations::Outcome;
use std::ops::Range;

use super::busy::BusyView;
use super::held::HeldAg;
use super::space::{AllocRequest, Candidate, LENGTH_STEPS, NEAR_STEPS};
use crate::btree::records::{BnoTree, CntTree, FreeRun};
use crate::btree::{Seek, Tree};
use crate::format::address::AgBlock;

impl AllocRequest {
    /// Returns the nearest clean place in `run` at or after the best place, or else the first clean place of `run` with
    /// room for all blocks.
    fn clean_candidate_in(&self, busy: &BusyView<'_>, run: FreeRun) -> Option<Candidate> {
        let whole = run.start.0..u32::try_from(run.end()).ok()?;
        let behind = whole.start.max(self.near.0)..whole.end;
        let fits = |part: &Range<u32>| part.end - part.start >= self.len;
        let mut found = None;
        if !behind.is_empty() {
            found = busy.clean_parts(behind).find(fits);
        }
        let found = found.or_else(|| busy.clean_parts(whole).find(fits))?;
        Some(Candidate { run, start: AgBlock(found.start), len: self.len })
    }
}

impl HeldAg<'_, '_> {
    /// Finds a place without busy blocks: for `len` blocks near `near`, or else for as many as possible, at least
    /// `enough`.
    pub(super) fn find_clean(
        &mut self,
        near: AgBlock,
        len: u32,
        enough: u32,
    ) -> Outcome<Option<Candidate>> {
        let request = AllocRequest::near(near, len);
        let mut candidate = None;
        if self.guard.longest >= len {
            candidate = self.find_clean_near(&request)?;
            if candidate.is_none() {
                candidate = self.find_clean_by_length(&request)?;
            }
        }
        if candidate.is_none() {
            candidate = self.longest_clean(len, enough)?;
        }
        self.checked_run(candidate.map(|found| found.run))?;
        Ok(candidate)
    }

    fn find_clean_near(&mut self, request: &AllocRequest) -> Outcome<Option<Candidate>> {
        let mut cursor = self.cursor::<BnoTree>();
        let mut run = cursor.seek(request.near, Seek::AtMost)?;
        let mut below = None;
        for _ in 0..NEAR_STEPS {
            let Some(found) = run else { break };
            below = request.clean_candidate_in(&cursor.anchor.busy(), found);
            if below.is_some() {
                break;
            }
            run = cursor.previous()?;
        }
        if below.is_some_and(|found| found.start == request.near) {
            return Ok(below);
        }
        let next = AgBlock(request.near.0.saturating_add(1));
        let mut run = cursor.seek(next, Seek::AtLeast)?;
        let mut above = None;
        for _ in 0..NEAR_STEPS {
            let Some(found) = run else { break };
            above = request.clean_candidate_in(&cursor.anchor.busy(), found);
            if above.is_some() {
                break;
            }
            run = cursor.next()?;
        }
        Ok([below, above].into_iter().flatten().min_by_key(|found| request.distance(found)))
    }

    fn find_clean_by_length(&mut self, request: &AllocRequest) -> Outcome<Option<Candidate>> {
        let mut cursor = self.cursor::<CntTree>();
        let mut run = cursor.seek((request.len, AgBlock(0)), Seek::AtLeast)?;
        let mut best: Option<Candidate> = None;
        for _ in 0..LENGTH_STEPS {
            let Some(found) = run else { break };
            let candidate = request.clean_candidate_in(&cursor.anchor.busy(), found);
            best =
                [best, candidate].into_iter().flatten().min_by_key(|found| request.distance(found));
            run = cursor.next()?;
        }
        Ok(best)
    }

    /// Returns the longest clean place in the longest free runs, of at least `enough` and at most `len` blocks.
    fn longest_clean(&mut self, len: u32, enough: u32) -> Outcome<Option<Candidate>> {
        let mut cursor = self.cursor::<CntTree>();
        let mut run = cursor.seek(CntTree::key_of(&LONGEST), Seek::AtMost)?;
        let mut best: Option<Candidate> = None;
        for _ in 0..LENGTH_STEPS {
            let known = best.map_or(enough.max(1) - 1, |best| best.len);
            let Some(found) = run.filter(|found| found.len > known) else { break };
            let Ok(end) = u32::try_from(found.end()) else { break };
            let parts = cursor.anchor.busy();
            let longest =
                parts.clean_parts(found.start.0..end).max_by_key(|part| part.end - part.start);
            if let Some(part) = longest.filter(|part| part.end - part.start > known) {
                let len = len.min(part.end - part.start);
                best = Some(Candidate { run: found, start: AgBlock(part.start), len });
            }
            run = cursor.previous()?;
        }
        Ok(best)
    }
}

/// Sorts after all runs in the tree by length.
const LONGEST: FreeRun = FreeRun { start: AgBlock::NULL, len: u32::MAX };
