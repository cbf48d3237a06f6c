//! Blocks that several files have: the tree of references counts those that more than one has. Who
//! gives such blocks back takes one reference away; they become free with the last one.

use std::ops::Range;

use transaction::Corruption;
use vfs::Result;

use crate::alloc::ags::AgTree;
use crate::btree::records::{RefcountRecord, RefcountTree};
use crate::btree::{Cursor, Seek};
use crate::format::address::{AgBlock, FsBlock};
use crate::op::Op;

/// A count that is never changed any more, because it may have been higher (`XFS_REFC_REFCOUNT_MAX`).
const COUNT_PINNED: u32 = u32::MAX;

impl RefcountRecord {
    /// One past its last block.
    pub(super) fn end(&self) -> u64 {
        u64::from(self.start.0) + u64::from(self.len)
    }

    /// The part of it from `start` to `end`.
    pub(super) fn part(&self, start: u64, end: u64) -> Self {
        Self { start: AgBlock(start as u32), len: (end - start) as u32, ..*self }
    }
}

impl Op<'_> {
    /// How many of `len` blocks from `start` on, of one group, are alike: either nobody else has them and
    /// they may be written over, or they must be left as they are.
    ///
    /// Blocks that others had until lately are left, too: a crash before the checkpoint is durable in
    /// which those were given back would bring them back.
    pub(crate) fn own_blocks(&mut self, start: FsBlock, len: u64) -> Result<(bool, u64)> {
        let (ag, block) = self.fs.volume.geometry.split(start);
        let lease = self.lease(ag)?;
        let (at, end) = (u64::from(block.0), u64::from(block.0) + len);
        let mut until = end;
        if let Some(run) = self.shared_from(lease, at, end)? {
            if u64::from(run.start.0) <= at {
                return Ok((false, run.end().min(end) - at));
            }
            until = run.start.0.into();
        }
        let busy = self.leases[lease].busy();
        let clean = busy.clean_parts(block.0..until as u32).next();
        Ok(match clean {
            Some(clean) if clean.start == block.0 => (true, u64::from(clean.end) - at),
            Some(clean) => (false, u64::from(clean.start) - at),
            None => (false, until - at),
        })
    }

    /// How many of the last of `len` blocks from `start` on, of one group, have the same number of files,
    /// piece by piece, with at most `pieces` pieces, which are counted off: what one operation can give
    /// back, because each piece is a change of the trees.
    pub(crate) fn alike_at_end(
        &mut self,
        start: FsBlock,
        len: u64,
        pieces: &mut u32,
    ) -> Result<u64> {
        let (ag, block) = self.fs.volume.geometry.split(start);
        let lease = self.lease(ag)?;
        let (from, end) = (u64::from(block.0), u64::from(block.0) + len);
        let mut at = end;
        while at > from && *pieces > 0 {
            *pieces -= 1;
            at = self.alike_before(lease, at)?.max(from);
        }
        Ok(end - at)
    }

    /// Where the run of blocks starts that ends before `end` and that all have the same number of files.
    fn alike_before(&mut self, lease: usize, end: u64) -> Result<u64> {
        if self.leases[lease].root(AgTree::Refcount).levels == 0 {
            return Ok(0);
        }
        let last = AgBlock(end.saturating_sub(1) as u32);
        let found =
            Cursor::<RefcountTree>::of_group(self, lease).seek((false, last), Seek::AtMost)?;
        Ok(found.map_or(0, |run| if run.end() < end { run.end() } else { run.start.0.into() }))
    }

    /// Takes one reference to blocks of a group away, and makes those free that have none left.
    pub(crate) fn drop_references(&mut self, lease: usize, start: AgBlock, len: u32) -> Result<()> {
        self.each_part(lease, start, len, |op, part, shared| match shared {
            None => {
                op.adjust_agfl(lease)?;
                op.give_space(lease, AgBlock(part.start as u32), (part.end - part.start) as u32)
            }
            Some(run) => op.recount(lease, run, part, run.count - 1),
        })
    }

    /// Adds one reference to blocks of a group that are in use.
    pub(crate) fn add_references(&mut self, lease: usize, start: AgBlock, len: u32) -> Result<()> {
        self.each_part(lease, start, len, |op, part, shared| match shared {
            None => op.begin_sharing(lease, part),
            Some(run) => op.recount(lease, run, part, run.count + 1),
        })
    }

    /// Calls `change` with the parts of blocks that are shared, each with its record, or are not. What is
    /// shared so often that it is not counted is left out.
    fn each_part(
        &mut self,
        lease: usize,
        start: AgBlock,
        len: u32,
        mut change: impl FnMut(&mut Self, Range<u64>, Option<RefcountRecord>) -> Result<()>,
    ) -> Result<()> {
        let mut at = u64::from(start.0);
        let end = at + u64::from(len);
        while at < end {
            let shared = self.shared_from(lease, at, end)?;
            let shared_from = shared.map_or(end, |run| u64::from(run.start.0).max(at));
            if at < shared_from {
                change(self, at..shared_from, None)?;
            }
            at = shared_from;
            if let Some(run) = shared {
                let until = run.end().min(end);
                if run.count != COUNT_PINNED {
                    change(self, at..until, Some(run))?;
                }
                at = until;
            }
        }
        Ok(())
    }

    /// Lists blocks that one file had as blocks that two have.
    fn begin_sharing(&mut self, lease: usize, blocks: Range<u64>) -> Result<()> {
        self.adjust_agfl(lease)?;
        let whole = RefcountRecord { start: AgBlock(0), cow: false, len: 0, count: 2 };
        let new = whole.part(blocks.start, blocks.end);
        let mut cursor = Cursor::<RefcountTree>::of_group(self, lease);
        cursor.seek((false, new.start), Seek::Exactly)?;
        cursor.insert(new)?;
        self.join_references(lease, false, blocks.end)?;
        self.join_references(lease, false, blocks.start)
    }

    /// The first run of shared blocks that reaches into `at..end`.
    fn shared_from(&mut self, lease: usize, at: u64, end: u64) -> Result<Option<RefcountRecord>> {
        if self.leases[lease].root(AgTree::Refcount).levels == 0 {
            return Ok(None);
        }
        let limit = u64::from(self.leases[lease].length);
        let ag = self.leases[lease].number();
        let mut cursor = Cursor::<RefcountTree>::of_group(self, lease);
        let mut found = cursor.seek((false, AgBlock(at as u32)), Seek::AtMost)?;
        if found.is_none_or(|run| run.end() <= at) {
            found = cursor.seek((false, AgBlock(at as u32)), Seek::AtLeast)?;
        }
        // Runs that are kept for copying on write come after all shared ones.
        let Some(run) = found.filter(|run| !run.cow && u64::from(run.start.0) < end) else {
            return Ok(None);
        };
        if run.len == 0 || run.end() > limit || run.count < 2 {
            let what =
                format!("{} references to {} blocks from {} on", run.count, run.len, run.start);
            return Err(Corruption::new("tree of references", what).in_group(ag.0.into()).into());
        }
        Ok(Some(run))
    }

    /// Gives `blocks`, which lie in `run`, another count.
    fn recount(
        &mut self,
        lease: usize,
        run: RefcountRecord,
        blocks: Range<u64>,
        count: u32,
    ) -> Result<()> {
        self.adjust_agfl(lease)?;
        let mut cursor = Cursor::<RefcountTree>::of_group(self, lease);
        cursor.seek((false, run.start), Seek::Exactly)?;
        cursor.remove()?;
        let before = run.part(run.start.0.into(), blocks.start);
        let changed = RefcountRecord { count, ..run.part(blocks.start, blocks.end) };
        let after = run.part(blocks.end, run.end());
        // Blocks that one file has are not listed.
        for part in [before, changed, after] {
            if part.len > 0 && part.count > 1 {
                cursor.insert(part)?;
            }
        }
        self.join_references(lease, false, blocks.end)?;
        self.join_references(lease, false, blocks.start)?;
        if changed.count == 1 && self.fs.engine.has_log() {
            // One file has them now, which must not write over them yet.
            self.leases[lease].make_busy(changed.start, changed.len);
        }
        Ok(())
    }

    /// Makes one record of two that meet at a block and count alike.
    pub(super) fn join_references(&mut self, lease: usize, cow: bool, at: u64) -> Result<()> {
        let Some(last_before) = at.checked_sub(1) else { return Ok(()) };
        let mut cursor = Cursor::<RefcountTree>::of_group(self, lease);
        let right = cursor.seek((cow, AgBlock(at as u32)), Seek::Exactly)?;
        let Some(right) = right else { return Ok(()) };
        let left = cursor.seek((cow, AgBlock(last_before as u32)), Seek::AtMost)?;
        let Some(left) =
            left.filter(|left| left.cow == cow && left.end() == at && left.count == right.count)
        else {
            return Ok(());
        };
        cursor.update(left.part(left.start.0.into(), right.end()))?;
        cursor.seek((cow, right.start), Seek::Exactly)?;
        cursor.remove()
    }
}

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
