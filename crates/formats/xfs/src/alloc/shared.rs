//! Blocks shared by several files. The reference-count tree counts the files of each shared block. Freeing such a block
//! in a file removes one reference, and the last one frees the block.

use operations::Outcome;
use std::ops::Range;

use engine::Corruption;

use super::ags::AgTree;
use super::busy::BusyView;
use super::held::HeldAg;
use crate::btree::records::{RefcountRecord, RefcountTree, RtRefcountTree};
use crate::btree::{Cursor, Seek, Supply, Tree};
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
        if let Some(block) = start.realtime() {
            return self.own_realtime_blocks(block, len);
        }
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
        if let Some(block) = start.realtime() {
            return self.alike_realtime_at_end(block, len, pieces);
        }
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

    /// Like [`Op::alike_at_end`], for the first of the blocks.
    pub(crate) fn alike_at_start(
        &mut self,
        start: FsBlock,
        len: u64,
        pieces: &mut u32,
    ) -> Outcome<u64> {
        if let Some(block) = start.realtime() {
            return self.alike_realtime_at_start(block, len, pieces);
        }
        let (ag, block) = self.fs.volume.geometry.split(start);
        let mut ag = self.ag(ag)?;
        let (from, end) = (u64::from(block.0), u64::from(block.0) + len);
        let mut at = from;
        while at < end && *pieces > 0 {
            *pieces -= 1;
            at = ag.alike_after(at)?.min(end);
        }
        Ok(at - from)
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
        Ok(clean_start(&self.busy(), block.0..until as u32))
    }

    /// Returns the start of the run of blocks that ends before `end` and has one reference count.
    fn alike_before(&mut self, end: u64) -> Outcome<u64> {
        if !self.has_tree(AgTree::Refcount) {
            return Ok(0);
        }
        alike_before(&mut self.cursor::<RefcountTree>(), end)
    }

    /// Returns the end of the run of blocks that starts at `start` and has one reference count.
    fn alike_after(&mut self, start: u64) -> Outcome<u64> {
        if !self.has_tree(AgTree::Refcount) {
            return Ok(u64::MAX);
        }
        alike_after(&mut self.cursor::<RefcountTree>(), start)
    }

    /// Removes one reference from blocks, and frees those that have none left.
    pub(crate) fn drop_references(&mut self, start: AgBlock, len: u32) -> Outcome<()> {
        each_part(self, start, len, Self::shared_from, |ag, part, shared| match shared {
            None => {
                ag.adjust_agfl()?;
                ag.give_space(AgBlock(part.start as u32), (part.end - part.start) as u32)
            }
            Some(run) => ag.recount(run, part, run.count - 1),
        })
    }

    /// Adds one reference to blocks in use.
    pub(crate) fn add_references(&mut self, start: AgBlock, len: u32) -> Outcome<()> {
        each_part(self, start, len, Self::shared_from, |ag, part, shared| match shared {
            None => {
                ag.adjust_agfl()?;
                begin_sharing(&mut ag.cursor::<RefcountTree>(), part)
            }
            Some(run) => ag.recount(run, part, run.count + 1),
        })
    }

    /// Returns the first run of shared blocks that overlaps `at..end`.
    fn shared_from(&mut self, at: u64, end: u64) -> Outcome<Option<RefcountRecord>> {
        if !self.has_tree(AgTree::Refcount) {
            return Ok(None);
        }
        let limit = u64::from(self.guard.length);
        shared_from(&mut self.cursor::<RefcountTree>(), at..end, limit)
    }

    /// Changes the count of `blocks`, which are a part of `run`.
    fn recount(&mut self, run: RefcountRecord, blocks: Range<u64>, count: u32) -> Outcome<()> {
        self.adjust_agfl()?;
        recount(&mut self.cursor::<RefcountTree>(), run, blocks.clone(), count)?;
        if count == 1 {
            // The remaining file must not overwrite them before the checkpoint is durable.
            self.make_busy(AgBlock(blocks.start as u32), (blocks.end - blocks.start) as u32);
        }
        Ok(())
    }
}

/// Returns whether the first of some blocks is not busy, and for how many of them from there on that is the same.
pub(super) fn clean_start(busy: &BusyView<'_>, blocks: Range<u32>) -> (bool, u64) {
    let (start, end) = (blocks.start, blocks.end);
    match busy.clean_parts(blocks).next() {
        Some(clean) if clean.start == start => (true, u64::from(clean.end - start)),
        Some(clean) => (false, u64::from(clean.start - start)),
        None => (false, u64::from(end - start)),
    }
}

/// Reference counts: of an allocation group or of a realtime group.
pub(crate) trait References: Tree<Record = RefcountRecord, Key = (bool, AgBlock)> {}

impl References for RefcountTree {}
impl References for RtRefcountTree {}

/// Calls `change` for each shared part of some blocks, with its record, and for each part that is not shared. `find`
/// returns the first run of shared blocks in a range. Blocks with a saturated count are skipped.
pub(super) fn each_part<G>(
    group: &mut G,
    start: AgBlock,
    len: u32,
    mut find: impl FnMut(&mut G, u64, u64) -> Outcome<Option<RefcountRecord>>,
    mut change: impl FnMut(&mut G, Range<u64>, Option<RefcountRecord>) -> Outcome<()>,
) -> Outcome<()> {
    let mut at = u64::from(start.0);
    let end = at + u64::from(len);
    while at < end {
        let shared = find(group, at, end)?;
        let shared_from = shared.map_or(end, |run| u64::from(run.start.0).max(at));
        if at < shared_from {
            change(group, at..shared_from, None)?;
            // The record found may have been merged with these blocks, so it is looked up again.
            at = shared_from;
            continue;
        }
        if let Some(run) = shared {
            let until = run.end().min(end);
            if run.count != COUNT_PINNED {
                change(group, at..until, Some(run))?;
            }
            at = until;
        }
    }
    Ok(())
}

/// Adds a record for blocks of one file that now belong to two.
pub(super) fn begin_sharing<'a, T: References, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    blocks: Range<u64>,
) -> Outcome<()> {
    let whole = RefcountRecord { start: AgBlock(0), cow: false, len: 0, count: 2 };
    let new = whole.part(blocks.start, blocks.end);
    cursor.seek((false, new.start), Seek::Exactly)?;
    cursor.insert(new)?;
    join_references(cursor, false, blocks.end)?;
    join_references(cursor, false, blocks.start)
}

/// Returns the first run of shared blocks that overlaps `blocks`. The group has `limit` blocks.
pub(super) fn shared_from<'a, T: References, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    blocks: Range<u64>,
    limit: u64,
) -> Outcome<Option<RefcountRecord>> {
    let first = AgBlock(blocks.start as u32);
    let mut found = cursor.seek((false, first), Seek::AtMost)?;
    if found.is_none_or(|run| run.end() <= blocks.start) {
        found = cursor.seek((false, first), Seek::AtLeast)?;
    }
    // Runs staged for copy on write sort after all shared ones.
    let Some(run) = found.filter(|run| !run.cow && u64::from(run.start.0) < blocks.end) else {
        return Ok(None);
    };
    if run.len == 0 || run.end() > limit || run.count < 2 {
        let what = format!("{} references to {} blocks from {}", run.count, run.len, run.start);
        return Err(cursor.in_tree(Corruption::new("reference count tree", what)).into());
    }
    Ok(Some(run))
}

/// Returns the start of the run of blocks that ends before `end` and has one reference count.
pub(super) fn alike_before<'a, T: References, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    end: u64,
) -> Outcome<u64> {
    let last = AgBlock(end.saturating_sub(1) as u32);
    let found = cursor.seek((false, last), Seek::AtMost)?;
    Ok(found.map_or(0, |run| if run.end() < end { run.end() } else { run.start.0.into() }))
}

/// Returns the end of the run of blocks that starts at `start` and has one reference count.
pub(super) fn alike_after<'a, T: References, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    start: u64,
) -> Outcome<u64> {
    let first = (false, AgBlock(start as u32));
    if let Some(run) = cursor.seek(first, Seek::AtMost)?.filter(|run| run.end() > start) {
        return Ok(run.end());
    }
    let next = cursor.seek(first, Seek::AtLeast)?.filter(|run| !run.cow);
    Ok(next.map_or(u64::MAX, |run| u64::from(run.start.0).max(start + 1)))
}

/// Changes the count of `blocks`, which are a part of `run`.
pub(super) fn recount<'a, T: References, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    run: RefcountRecord,
    blocks: Range<u64>,
    count: u32,
) -> Outcome<()> {
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
    join_references(cursor, false, blocks.end)?;
    join_references(cursor, false, blocks.start)
}

/// Joins two records that meet at block `at` and have the same count.
pub(super) fn join_references<'a, T: References, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    cow: bool,
    at: u64,
) -> Outcome<()> {
    let Some(last_before) = at.checked_sub(1) else { return Ok(()) };
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

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
