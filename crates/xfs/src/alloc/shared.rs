//! Blocks that several files share: the tree of references counts the files of each block that has
//! more than one. A file that gives such a block back takes one reference away, and the last reference
//! frees the block.

use operation::Outcome;
use std::ops::Range;

use transaction::Corruption;

use super::ags::AgTree;
use super::held::HeldAg;
use crate::btree::Seek;
use crate::btree::records::{RefcountRecord, RefcountTree};
use crate::format::address::{AgBlock, FsBlock};
use crate::op::Op;

/// A count that never changes any more, because it may once have been higher
/// (`XFS_REFC_REFCOUNT_MAX`).
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
    /// Whether the block at `start` is the file's own and may be written over, or must stay as it is;
    /// and for how many of the `len` blocks from there on, all in one group, the answer is the same.
    ///
    /// Blocks that other files had until lately must stay, too: a crash before the checkpoint that gave
    /// them back is durable would bring those files' references back.
    pub(crate) fn own_blocks(&mut self, start: FsBlock, len: u64) -> Outcome<(bool, u64)> {
        let (ag, block) = self.fs.volume.geometry.split(start);
        self.ag(ag)?.own_blocks(block, len)
    }

    /// How many of the last of `len` blocks from `start` on, all in one group, make up at most `pieces`
    /// pieces that the same number of files refer to. The pieces are subtracted from `pieces`: each is
    /// a change of the trees, and one operation can make only so many.
    pub(crate) fn alike_at_end(
        &mut self,
        start: FsBlock,
        len: u64,
        pieces: &mut u32,
    ) -> Outcome<u64> {
        let (ag, block) = self.fs.volume.geometry.split(start);
        let mut ag = self.ag(ag)?;
        let (from, end) = (u64::from(block.0), u64::from(block.0) + len);
        let mut at = end;
        while at > from && *pieces > 0 {
            *pieces -= 1;
            at = ag.alike_before(at)?.max(from);
        }
        Ok(end - at)
    }
}

impl HeldAg<'_, '_> {
    /// As [`Op::own_blocks`], of this group.
    fn own_blocks(&mut self, block: AgBlock, len: u64) -> Outcome<(bool, u64)> {
        let (at, end) = (u64::from(block.0), u64::from(block.0) + len);
        let mut until = end;
        if let Some(run) = self.shared_from(at, end)? {
            if u64::from(run.start.0) <= at {
                return Ok((false, run.end().min(end) - at));
            }
            until = run.start.0.into();
        }
        let busy = self.busy();
        let clean = busy.clean_parts(block.0..until as u32).next();
        Ok(match clean {
            Some(clean) if clean.start == block.0 => (true, u64::from(clean.end) - at),
            Some(clean) => (false, u64::from(clean.start) - at),
            None => (false, until - at),
        })
    }

    /// The start of the run of blocks that ends before `end` and has one count of references.
    fn alike_before(&mut self, end: u64) -> Outcome<u64> {
        if !self.has_tree(AgTree::Refcount) {
            return Ok(0);
        }
        let last = AgBlock(end.saturating_sub(1) as u32);
        let found = self.cursor::<RefcountTree>().seek((false, last), Seek::AtMost)?;
        Ok(found.map_or(0, |run| if run.end() < end { run.end() } else { run.start.0.into() }))
    }

    /// Takes one reference to blocks away, and frees those that have none left.
    pub(crate) fn drop_references(&mut self, start: AgBlock, len: u32) -> Outcome<()> {
        self.each_part(start, len, |ag, part, shared| match shared {
            None => {
                ag.adjust_agfl()?;
                ag.give_space(AgBlock(part.start as u32), (part.end - part.start) as u32)
            }
            Some(run) => ag.recount(run, part, run.count - 1),
        })
    }

    /// Adds one reference to blocks that are in use.
    pub(crate) fn add_references(&mut self, start: AgBlock, len: u32) -> Outcome<()> {
        self.each_part(start, len, |ag, part, shared| match shared {
            None => ag.begin_sharing(part),
            Some(run) => ag.recount(run, part, run.count + 1),
        })
    }

    /// Calls `change` for each part of some blocks that is shared, with its record, and for each part
    /// that is not. Blocks whose count is pinned are left out.
    fn each_part(
        &mut self,
        start: AgBlock,
        len: u32,
        mut change: impl FnMut(&mut Self, Range<u64>, Option<RefcountRecord>) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut at = u64::from(start.0);
        let end = at + u64::from(len);
        while at < end {
            let shared = self.shared_from(at, end)?;
            let shared_from = shared.map_or(end, |run| u64::from(run.start.0).max(at));
            if at < shared_from {
                change(self, at..shared_from, None)?;
                // The record found may have become one with these blocks: it is looked up again.
                at = shared_from;
                continue;
            }
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

    /// Enters blocks that one file had as blocks of two files.
    fn begin_sharing(&mut self, blocks: Range<u64>) -> Outcome<()> {
        self.adjust_agfl()?;
        let whole = RefcountRecord { start: AgBlock(0), cow: false, len: 0, count: 2 };
        let new = whole.part(blocks.start, blocks.end);
        let mut cursor = self.cursor::<RefcountTree>();
        cursor.seek((false, new.start), Seek::Exactly)?;
        cursor.insert(new)?;
        self.join_references(false, blocks.end)?;
        self.join_references(false, blocks.start)
    }

    /// The first run of shared blocks that reaches into `at..end`.
    fn shared_from(&mut self, at: u64, end: u64) -> Outcome<Option<RefcountRecord>> {
        if !self.has_tree(AgTree::Refcount) {
            return Ok(None);
        }
        let limit = u64::from(self.guard.length);
        let ag = self.number();
        let mut cursor = self.cursor::<RefcountTree>();
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

    /// Gives `blocks`, which are a part of `run`, another count.
    fn recount(&mut self, run: RefcountRecord, blocks: Range<u64>, count: u32) -> Outcome<()> {
        self.adjust_agfl()?;
        let mut cursor = self.cursor::<RefcountTree>();
        cursor.seek((false, run.start), Seek::Exactly)?;
        cursor.remove()?;
        let before = run.part(run.start.0.into(), blocks.start);
        let changed = RefcountRecord { count, ..run.part(blocks.start, blocks.end) };
        let after = run.part(blocks.end, run.end());
        // The tree does not list blocks of one file.
        for part in [before, changed, after] {
            if part.len > 0 && part.count > 1 {
                cursor.insert(part)?;
            }
        }
        self.join_references(false, blocks.end)?;
        self.join_references(false, blocks.start)?;
        if changed.count == 1 {
            // The one file that has them now must not write over them yet.
            self.make_busy(changed.start, changed.len);
        }
        Ok(())
    }

    /// Makes one record of two that meet at block `at` and have the same count.
    pub(super) fn join_references(&mut self, cow: bool, at: u64) -> Outcome<()> {
        let Some(last_before) = at.checked_sub(1) else { return Ok(()) };
        let mut cursor = self.cursor::<RefcountTree>();
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
