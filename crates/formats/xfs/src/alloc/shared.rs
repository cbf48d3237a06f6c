//! Blocks shared by several files. The reference-count tree counts the files of each shared block. Freeing such a block
//! in a file removes one reference, and the last one frees the block.

use operations::Outcome;
use std::ops::Range;

use engine::Corruption;

use super::ags::AgTree;
use super::held::HeldAg;
use crate::btree::Seek;
use crate::btree::records::{RefcountRecord, RefcountTree};
use crate::format::address::{AgBlock, FsBlock};
use crate::op::Op;

/// A saturated count, which never changes again because the real count may be higher (`XFS_REFC_REFCOUNT_MAX`).
const COUNT_PINNED: u32 = u32::MAX;

impl RefcountRecord {
    /// Returns one past its last block.
    pub(super) fn end(&self) -> u64 {
        u64::from(self.start.0) + u64::from(self.len)
    }

    /// Returns the part of it from `start` to `end`.
    pub(super) fn part(&self, start: u64, end: u64) -> Self {
        Self { start: AgBlock(start as u32), len: (end - start) as u32, ..*self }
    }
}

impl Op<'_> {
    /// Returns whether the block at `start` belongs to the file alone and may be overwritten, and for how many of the
    /// `len` blocks from there on the answer is the same. All of the blocks are in one group.
    ///
    /// Blocks that recently belonged to other files, too, must not be overwritten: a crash before the checkpoint that
    /// removed those references is durable would restore them.
    pub(crate) fn own_blocks(&mut self, start: FsBlock, len: u64) -> Outcome<(bool, u64)> {
        let (ag, block) = self.fs.volume.geometry.split(start);
        self.ag(ag)?.own_blocks(block, len)
    }

    /// Returns how many of the last of `len` blocks from `start` on form at most `pieces` pieces with a constant
    /// reference count. All of the blocks are in one group. The number of pieces is subtracted from `pieces`: each is a
    /// change of the trees, and an operation is limited to a number of them.
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
    /// Like [`Op::own_blocks`], within this group.
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

    /// Returns the start of the run of blocks that ends before `end` and has one reference count.
    fn alike_before(&mut self, end: u64) -> Outcome<u64> {
        if !self.has_tree(AgTree::Refcount) {
            return Ok(0);
        }
        let last = AgBlock(end.saturating_sub(1) as u32);
        let found = self.cursor::<RefcountTree>().seek((false, last), Seek::AtMost)?;
        Ok(found.map_or(0, |run| if run.end() < end { run.end() } else { run.start.0.into() }))
    }

    /// Removes one reference from blocks, and frees those that have none left.
    pub(crate) fn drop_references(&mut self, start: AgBlock, len: u32) -> Outcome<()> {
        self.each_part(start, len, |ag, part, shared| match shared {
            None => {
                ag.adjust_agfl()?;
                ag.give_space(AgBlock(part.start as u32), (part.end - part.start) as u32)
            }
            Some(run) => ag.recount(run, part, run.count - 1),
        })
    }

    /// Adds one reference to blocks in use.
    pub(crate) fn add_references(&mut self, start: AgBlock, len: u32) -> Outcome<()> {
        self.each_part(start, len, |ag, part, shared| match shared {
            None => ag.begin_sharing(part),
            Some(run) => ag.recount(run, part, run.count + 1),
        })
    }

    /// Calls `change` for each shared part of some blocks, with its record, and for each part that is not shared.
    /// Blocks with a saturated count are skipped.
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
                // The record found may have been merged with these blocks, so it is looked up again.
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

    /// Adds a record for blocks of one file that now belong to two.
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

    /// Returns the first run of shared blocks that overlaps `at..end`.
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
        // Runs staged for copy on write sort after all shared ones.
        let Some(run) = found.filter(|run| !run.cow && u64::from(run.start.0) < end) else {
            return Ok(None);
        };
        if run.len == 0 || run.end() > limit || run.count < 2 {
            let what = format!("{} references to {} blocks from {}", run.count, run.len, run.start);
            return Err(Corruption::new("reference count tree", what).in_group(ag.0.into()).into());
        }
        Ok(Some(run))
    }

    /// Changes the count of `blocks`, which are a part of `run`.
    fn recount(&mut self, run: RefcountRecord, blocks: Range<u64>, count: u32) -> Outcome<()> {
        self.adjust_agfl()?;
        let mut cursor = self.cursor::<RefcountTree>();
        cursor.seek((false, run.start), Seek::Exactly)?;
        cursor.remove()?;
        let before = run.part(run.start.0.into(), blocks.start);
        let changed = RefcountRecord { count, ..run.part(blocks.start, blocks.end) };
        let after = run.part(blocks.end, run.end());
        // Blocks of a single file have no record.
        for part in [before, changed, after] {
            if part.len > 0 && part.count > 1 {
                cursor.insert(part)?;
            }
        }
        self.join_references(false, blocks.end)?;
        self.join_references(false, blocks.start)?;
        if changed.count == 1 {
            // The remaining file must not overwrite them before the checkpoint is durable.
            self.make_busy(changed.start, changed.len);
        }
        Ok(())
    }

    /// Joins two records that meet at block `at` and have the same count.
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
