//! Free space of one group: its two trees, changed together.

use transaction::Corruption;
use vfs::{Error, Result};

use crate::btree::records::{BnoTree, CntTree, FreeRun};
use crate::btree::{Cursor, Seek};
use crate::format::address::AgBlock;
use crate::op::Op;

/// Free runs that are looked at on each side of a place before any that is long enough will do.
pub(super) const NEAR_STEPS: usize = 8;
/// Free runs of a length that are looked at for one that is nearer or better aligned.
pub(super) const LENGTH_STEPS: usize = 64;

/// Where blocks are wanted in a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// Where it would be best.
    pub(crate) near: AgBlock,
    /// Blocks wanted.
    pub(crate) len: u32,
    /// The first block must be a multiple of this.
    pub(crate) align: u32,
    /// First block that may be taken, and one past the last.
    pub(crate) within: (u32, u32),
}

/// Blocks that may be taken, and the free run that they are in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) run: FreeRun,
    pub(super) start: AgBlock,
    pub(super) len: u32,
}

impl FreeRun {
    /// One past its last block.
    pub(super) fn end(&self) -> u64 {
        u64::from(self.start.0) + u64::from(self.len)
    }
}

impl Wish {
    /// Blocks anywhere in a group, best at `near`.
    pub(crate) const fn near(near: AgBlock, len: u32) -> Self {
        Self { near, len, align: 1, within: (0, u32::MAX) }
    }

    /// The place in `run` that is nearest to where it would be best.
    fn spot_in(&self, run: FreeRun) -> Option<Spot> {
        let align = self.align.max(1);
        let first = run.start.0.max(self.within.0).checked_next_multiple_of(align)?;
        let end = run.end().min(self.within.1.into()) as u32;
        let last = end.checked_sub(self.len)? / align * align;
        if first > last {
            return None;
        }
        // `first` and `last` are multiples of `align`, and so is what lies nearest between.
        let best = (self.near.0 / align * align).clamp(first, last);
        Some(Spot { run, start: AgBlock(best), len: self.len })
    }

    fn distance(&self, spot: &Spot) -> u32 {
        spot.start.0.abs_diff(self.near.0)
    }

    fn nearer(&self, a: Option<Spot>, b: Option<Spot>) -> Option<Spot> {
        match (a, b) {
            (Some(a), Some(b)) if self.distance(&b) < self.distance(&a) => Some(b),
            (None, b) => b,
            (a, _) => a,
        }
    }
}

impl Op<'_> {
    /// Damage in a group's trees of free space.
    fn space_damage(&self, lease: usize, problem: &str, run: FreeRun) -> Error {
        let what = format!("{problem}: {} blocks from {} on", run.len, run.start);
        let ag = self.leases[lease].number();
        Corruption::new("trees of free space", what).in_group(ag.0.into()).into()
    }

    /// A run as a tree lists it, checked to lie in its group.
    pub(super) fn checked_run(
        &self,
        lease: usize,
        run: Option<FreeRun>,
    ) -> Result<Option<FreeRun>> {
        match run {
            Some(run) if run.len == 0 || run.end() > self.leases[lease].length.into() => {
                Err(self.space_damage(lease, "a free run outside of the group", run))
            }
            run => Ok(run),
        }
    }

    /// The shortest free run of at least `len` blocks, or else the longest one.
    pub(super) fn smallest_run(&mut self, lease: usize, len: u32) -> Result<Option<FreeRun>> {
        let mut cursor = Cursor::<CntTree>::of_group(self, lease);
        let mut found = cursor.seek((len, AgBlock(0)), Seek::AtLeast)?;
        if found.is_none() {
            found = cursor.seek((u32::MAX, AgBlock::NULL), Seek::AtMost)?;
        }
        self.checked_run(lease, found)
    }

    /// The longest free run.
    pub(super) fn longest_run(&mut self, lease: usize) -> Result<Option<FreeRun>> {
        self.smallest_run(lease, u32::MAX)
    }

    /// A place for all that is wanted, near where it would be best.
    pub(super) fn find_spot(&mut self, lease: usize, wish: &Wish) -> Result<Option<Spot>> {
        if self.leases[lease].longest < wish.len {
            return Ok(None);
        }
        if let Some(spot) = self.find_near(lease, wish)? {
            return Ok(Some(spot));
        }
        self.find_by_length(lease, wish)
    }

    /// The nearest place among the free runs around where it would be best.
    fn find_near(&mut self, lease: usize, wish: &Wish) -> Result<Option<Spot>> {
        let mut cursor = Cursor::<BnoTree>::of_group(self, lease);
        let mut run = cursor.seek(wish.near, Seek::AtMost)?;
        let mut below = None;
        for _ in 0..NEAR_STEPS {
            below = run.and_then(|run| wish.spot_in(run));
            if below.is_some() || run.is_none() {
                break;
            }
            run = cursor.previous()?;
        }
        if let Some(spot) = below.filter(|spot| wish.distance(spot) < wish.align.max(1)) {
            return self.checked_spot(lease, Some(spot));
        }
        let mut run = cursor.seek(AgBlock(wish.near.0.saturating_add(1)), Seek::AtLeast)?;
        let mut above = None;
        for _ in 0..NEAR_STEPS {
            above = run.and_then(|run| wish.spot_in(run));
            if above.is_some() || run.is_none() {
                break;
            }
            run = cursor.next()?;
        }
        self.checked_spot(lease, wish.nearer(below, above))
    }

    /// A place in one of the shortest free runs that are long enough.
    fn find_by_length(&mut self, lease: usize, wish: &Wish) -> Result<Option<Spot>> {
        let mut cursor = Cursor::<CntTree>::of_group(self, lease);
        let mut best = None;
        let mut run = cursor.seek((wish.len, AgBlock(0)), Seek::AtLeast)?;
        for _ in 0..LENGTH_STEPS {
            let Some(found) = run else { break };
            best = wish.nearer(best, wish.spot_in(found));
            run = cursor.next()?;
        }
        if best.is_none() {
            // Whatever it starts at, such a run has an aligned place.
            let sure = wish.len.saturating_add(wish.align.saturating_sub(1));
            let run = cursor.seek((sure, AgBlock(0)), Seek::AtLeast)?;
            best = run.and_then(|run| wish.spot_in(run));
        }
        self.checked_spot(lease, best)
    }

    fn checked_spot(&self, lease: usize, spot: Option<Spot>) -> Result<Option<Spot>> {
        self.checked_run(lease, spot.map(|spot| spot.run))?;
        Ok(spot)
    }

    /// Takes blocks as wished. The AGFL must be long enough already, and the reverse map is left to
    /// the caller.
    pub(crate) fn take_wish(&mut self, lease: usize, wish: &Wish) -> Result<Option<AgBlock>> {
        let Some(spot) = self.find_spot(lease, wish)? else { return Ok(None) };
        self.take_space(lease, spot.run, spot.start, wish.len)?;
        Ok(Some(spot.start))
    }

    /// Takes blocks out of a free run, in both trees.
    pub(super) fn take_space(
        &mut self,
        lease: usize,
        run: FreeRun,
        start: AgBlock,
        len: u32,
    ) -> Result<()> {
        let before = start.0.checked_sub(run.start.0);
        let after = before.and_then(|before| run.len.checked_sub(before)?.checked_sub(len));
        let (Some(before), Some(after)) = (before, after) else {
            return Err(self.space_damage(lease, "a free run is not where it was", run));
        };
        let left = FreeRun { start: run.start, len: before };
        let right = FreeRun { start: AgBlock(start.0 + len), len: after };
        self.replace_by_block(lease, run, left, right)?;
        let (kept, added) = if before > 0 { (left, right) } else { (right, left) };
        self.replace_by_length(lease, run, kept)?;
        if added.len > 0 {
            Cursor::<CntTree>::of_group(self, lease).insert(added)?;
        }
        if run.len == self.leases[lease].longest {
            let longest = self.longest_run(lease)?.map_or(0, |run| run.len);
            self.leases[lease].longest = longest;
        }
        self.count_free(lease, run, -i64::from(len))
    }

    /// Replaces a run by what is left of it at both ends, in the tree by block.
    fn replace_by_block(
        &mut self,
        lease: usize,
        run: FreeRun,
        left: FreeRun,
        right: FreeRun,
    ) -> Result<()> {
        let mut cursor = Cursor::<BnoTree>::of_group(self, lease);
        if cursor.seek(run.start, Seek::Exactly)? != Some(run) {
            return Err(self.space_damage(lease, "the tree by block does not list", run));
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

    /// Replaces a run by another one (of no blocks: by none) in the tree by length: in its place,
    /// where the order allows it, as for the long run that most is taken from.
    fn replace_by_length(&mut self, lease: usize, run: FreeRun, by: FreeRun) -> Result<()> {
        let key = |run: &FreeRun| (run.len, run.start);
        let mut cursor = Cursor::<CntTree>::of_group(self, lease);
        if cursor.seek(key(&run), Seek::Exactly)? != Some(run) {
            return Err(self.space_damage(lease, "the tree by length does not list", run));
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

    /// Makes blocks free, in both trees, as one run with those beside them. Blocks that are free
    /// already are damage.
    pub(super) fn give_space(&mut self, lease: usize, start: AgBlock, len: u32) -> Result<()> {
        let given = FreeRun { start, len };
        self.checked_run(lease, Some(given))?;
        let mut cursor = Cursor::<BnoTree>::of_group(self, lease);
        let left = cursor.seek(start, Seek::AtMost)?;
        let right =
            if left.is_some() { cursor.next()? } else { cursor.seek(start, Seek::AtLeast)? };
        let overlaps = left.is_some_and(|left| left.end() > start.0.into())
            || right.is_some_and(|right| u64::from(right.start.0) < given.end());
        if overlaps {
            return Err(self.space_damage(lease, "blocks freed that are free", given));
        }
        let left = left.filter(|left| left.end() == u64::from(start.0));
        let right = right.filter(|right| u64::from(right.start.0) == given.end());
        let merged = FreeRun {
            start: left.map_or(start, |left| left.start),
            len: len + left.map_or(0, |run| run.len) + right.map_or(0, |run| run.len),
        };
        self.merge_by_block(lease, left, right, merged)?;
        self.merge_by_length(lease, left, right, merged)?;
        self.leases[lease].longest = self.leases[lease].longest.max(merged.len);
        if self.fs.engine.has_log() {
            self.leases[lease].make_busy(start, len);
        }
        self.count_free(lease, given, len.into())
    }

    fn merge_by_block(
        &mut self,
        lease: usize,
        left: Option<FreeRun>,
        right: Option<FreeRun>,
        merged: FreeRun,
    ) -> Result<()> {
        let mut cursor = Cursor::<BnoTree>::of_group(self, lease);
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
        lease: usize,
        left: Option<FreeRun>,
        right: Option<FreeRun>,
        merged: FreeRun,
    ) -> Result<()> {
        if let (Some(left), Some(right)) = (left, right) {
            let (short, long) = if left.len < right.len { (left, right) } else { (right, left) };
            self.replace_by_length(lease, short, FreeRun { len: 0, ..short })?;
            return self.replace_by_length(lease, long, merged);
        }
        match left.or(right) {
            Some(kept) => self.replace_by_length(lease, kept, merged),
            None => Cursor::<CntTree>::of_group(self, lease).insert(merged),
        }
    }

    /// Counts blocks of `run` that became free, or in use.
    fn count_free(&mut self, lease: usize, run: FreeRun, change: i64) -> Result<()> {
        let state = &mut self.leases[lease];
        let count = u32::try_from(i64::from(state.freeblks) + change).ok();
        let Some(count) = count.filter(|count| *count <= state.length) else {
            return Err(self.space_damage(lease, "the AGF counts other free blocks", run));
        };
        state.freeblks = count;
        Ok(())
    }
}
