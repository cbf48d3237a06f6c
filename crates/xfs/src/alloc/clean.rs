//! Places for file data among free runs that are partly busy.
//!
//! Only so many runs are looked at, and so many places in each: what is missed is found when a checkpoint
//! has made the busy blocks usable, for which whoever runs out of space waits.

use std::ops::Range;

use vfs::Result;

use super::space::{LENGTH_STEPS, NEAR_STEPS, Spot};
use crate::btree::records::{BnoTree, CntTree, FreeRun};
use crate::btree::{Cursor, Seek, Tree};
use crate::format::address::AgBlock;
use crate::op::Op;

/// What is looked for.
#[derive(Clone, Copy)]
struct Wanted {
    near: AgBlock,
    len: u32,
}

impl Wanted {
    /// The place in `run` that is nearest behind `near`, or else the first one, with room for all.
    fn place_in(self, op: &Op<'_>, lease: usize, run: FreeRun) -> Option<Spot> {
        let whole = run.start.0..u32::try_from(run.end()).ok()?;
        let behind = whole.start.max(self.near.0)..whole.end;
        let fits = |part: &Range<u32>| part.end - part.start >= self.len;
        let busy = op.leases[lease].busy();
        let mut found = None;
        if !behind.is_empty() {
            found = busy.clean_parts(behind).find(fits);
        }
        let found = found.or_else(|| busy.clean_parts(whole).find(fits))?;
        Some(Spot { run, start: AgBlock(found.start), len: self.len })
    }

    fn distance(self, spot: &Spot) -> u32 {
        spot.start.0.abs_diff(self.near.0)
    }
}

impl Op<'_> {
    /// A place without busy blocks: for `len` blocks near `near`, or if there is none, for as many as can
    /// be had, at least `enough`.
    pub(super) fn find_clean_spot(
        &mut self,
        lease: usize,
        near: AgBlock,
        len: u32,
        enough: u32,
    ) -> Result<Option<Spot>> {
        let wanted = Wanted { near, len };
        let mut spot = None;
        if self.leases[lease].longest >= len {
            spot = self.find_clean_near(lease, wanted)?;
            if spot.is_none() {
                spot = self.find_clean_by_length(lease, wanted)?;
            }
        }
        if spot.is_none() {
            spot = self.longest_clean(lease, len, enough)?;
        }
        self.checked_run(lease, spot.map(|spot| spot.run))?;
        Ok(spot)
    }

    fn find_clean_near(&mut self, lease: usize, wanted: Wanted) -> Result<Option<Spot>> {
        let mut cursor = Cursor::<BnoTree>::of_group(self, lease);
        let mut run = cursor.seek(wanted.near, Seek::AtMost)?;
        let mut below = None;
        for _ in 0..NEAR_STEPS {
            let Some(found) = run else { break };
            below = wanted.place_in(cursor.op, lease, found);
            if below.is_some() {
                break;
            }
            run = cursor.previous()?;
        }
        if below.is_some_and(|spot| spot.start == wanted.near) {
            return Ok(below);
        }
        let next = AgBlock(wanted.near.0.saturating_add(1));
        let mut run = cursor.seek(next, Seek::AtLeast)?;
        let mut above = None;
        for _ in 0..NEAR_STEPS {
            let Some(found) = run else { break };
            above = wanted.place_in(cursor.op, lease, found);
            if above.is_some() {
                break;
            }
            run = cursor.next()?;
        }
        Ok([below, above].into_iter().flatten().min_by_key(|spot| wanted.distance(spot)))
    }

    fn find_clean_by_length(&mut self, lease: usize, wanted: Wanted) -> Result<Option<Spot>> {
        let mut cursor = Cursor::<CntTree>::of_group(self, lease);
        let mut run = cursor.seek((wanted.len, AgBlock(0)), Seek::AtLeast)?;
        let mut best: Option<Spot> = None;
        for _ in 0..LENGTH_STEPS {
            let Some(found) = run else { break };
            let spot = wanted.place_in(cursor.op, lease, found);
            best = [best, spot].into_iter().flatten().min_by_key(|spot| wanted.distance(spot));
            run = cursor.next()?;
        }
        Ok(best)
    }

    /// The longest place in the longest free runs, of at least `enough` blocks; `len` of it at most.
    fn longest_clean(&mut self, lease: usize, len: u32, enough: u32) -> Result<Option<Spot>> {
        let mut cursor = Cursor::<CntTree>::of_group(self, lease);
        let mut run = cursor.seek(CntTree::key_of(&LONGEST), Seek::AtMost)?;
        let mut best: Option<Spot> = None;
        for _ in 0..LENGTH_STEPS {
            let known = best.map_or(enough.max(1) - 1, |best| best.len);
            let Some(found) = run.filter(|found| found.len > known) else { break };
            let Ok(end) = u32::try_from(found.end()) else { break };
            let parts = cursor.op.leases[lease].busy();
            let longest =
                parts.clean_parts(found.start.0..end).max_by_key(|part| part.end - part.start);
            if let Some(part) = longest.filter(|part| part.end - part.start > known) {
                let len = len.min(part.end - part.start);
                best = Some(Spot { run: found, start: AgBlock(part.start), len });
            }
            run = cursor.previous()?;
        }
        Ok(best)
    }
}

/// No run comes after it in the tree by length.
const LONGEST: FreeRun = FreeRun { start: AgBlock::NULL, len: u32::MAX };
