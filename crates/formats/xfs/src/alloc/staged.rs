//! Blocks staged for copy on write. They have records of their own in the reference-count tree and an owner in the
//! reverse map, but belong to no file. Kernels allocate them before they write, and map them into the file afterwards.
//! A crash may leave some behind.

use engine::Corruption;
use operations::Outcome;
use operations::RunOperations;
use vfs::Result;

use super::RmapOwner;
use super::ags::AgTree;
use super::held::HeldAg;
use super::realtime::RealtimeSection;
use super::shared::{References, join_references};
use crate::XfsCore;
use crate::btree::records::{RefcountRecord, RefcountTree};
use crate::btree::{Cursor, Seek, Supply};
use crate::format::address::{AgBlock, AgNumber};
use crate::op::Op;

/// Number of runs that one operation frees.
pub(super) const FREED_PER_OP_MAX: usize = 64;

impl XfsCore {
    /// Frees all blocks staged for copy on write. No copy on write may be in progress.
    ///
    /// # Errors
    /// `Corrupt` if the trees contradict each other about them; if the device fails.
    pub(crate) fn free_staged(&self) -> Result<()> {
        for ag in self.volume.geometry.ags() {
            while !self.atomically_freeing(|op| op.free_some_staged(ag))? {}
        }
        for group in 0..self.volume.realtime.get().map_or(0, RealtimeSection::groups) {
            let free_some = |op: &mut Op<'_>| op.free_some_staged_realtime(group);
            while !self.atomically_freeing(free_some)? {}
        }
        Ok(())
    }
}

impl Op<'_> {
    /// Frees some staged blocks of a group. Returns whether those were all.
    fn free_some_staged(&mut self, ag: AgNumber) -> Outcome<bool> {
        let mut ag = self.ag(ag)?;
        if !ag.has_tree(AgTree::Refcount) {
            return Ok(true);
        }
        for _ in 0..FREED_PER_OP_MAX {
            let limit = ag.guard.length.into();
            let first = first_staged(&mut ag.cursor::<RefcountTree>(), limit)?;
            let Some(run) = first else { return Ok(true) };
            ag.unstage_blocks(run.start, run.len)?;
            ag.free_in(run.start, run.len, RmapOwner::Staged)?;
        }
        Ok(false)
    }
}

impl HeldAg<'_, '_> {
    /// Records blocks without an owner as staged for copy on write. The caller changes the reverse map.
    pub(crate) fn stage_blocks(&mut self, start: AgBlock, len: u32) -> Outcome<()> {
        self.adjust_agfl()?;
        stage(&mut self.cursor::<RefcountTree>(), start, len)
    }

    /// Removes blocks from the staged ones. They must be staged. The caller changes the reverse map.
    pub(crate) fn unstage_blocks(&mut self, start: AgBlock, len: u32) -> Outcome<()> {
        self.adjust_agfl()?;
        unstage(&mut self.cursor::<RefcountTree>(), start, len)
    }
}

/// Adds a record of blocks staged for copy on write. See [`HeldAg::stage_blocks`].
pub(super) fn stage<'a, T: References, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    start: AgBlock,
    len: u32,
) -> Outcome<()> {
    let new = RefcountRecord { start, cow: true, len, count: 1 };
    let before = cursor.seek((true, start), Seek::AtMost)?;
    let after = cursor.seek((true, start), Seek::AtLeast)?;
    let overlaps = before.is_some_and(|run| run.cow && run.end() > start.0.into())
        || after.is_some_and(|run| u64::from(run.start.0) < new.end());
    if overlaps {
        return Err(staged_damage(cursor, "copy-on-write blocks staged twice", new).into());
    }
    cursor.seek((true, start), Seek::Exactly)?;
    cursor.insert(new)?;
    join_references(cursor, true, new.end())?;
    join_references(cursor, true, start.0.into())
}

/// Removes blocks from the records of staged ones. See [`HeldAg::unstage_blocks`].
pub(super) fn unstage<'a, T: References, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    start: AgBlock,
    len: u32,
) -> Outcome<()> {
    let part = RefcountRecord { start, cow: true, len, count: 1 };
    let whole = cursor.seek((true, start), Seek::AtMost)?;
    let whole = whole.filter(|run| run.cow && run.count == 1 && run.end() >= part.end());
    let Some(whole) = whole else {
        let problem = "blocks that are not staged for copy-on-write";
        return Err(staged_damage(cursor, problem, part).into());
    };
    cursor.remove()?;
    for rest in
        [whole.part(whole.start.0.into(), start.0.into()), whole.part(part.end(), whole.end())]
    {
        if rest.len > 0 {
            cursor.seek((true, rest.start), Seek::Exactly)?;
            cursor.insert(rest)?;
        }
    }
    Ok(())
}

/// Returns the first run of staged blocks. The group has `limit` blocks.
pub(super) fn first_staged<'a, T: References, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    limit: u64,
) -> Outcome<Option<RefcountRecord>> {
    let Some(run) = cursor.seek((true, AgBlock(0)), Seek::AtLeast)? else { return Ok(None) };
    if run.len == 0 || run.count != 1 || run.end() > limit {
        return Err(staged_damage(cursor, "copy-on-write blocks", run).into());
    }
    Ok(Some(run))
}

fn staged_damage<'a, T: References, S: Supply<'a, T>>(
    cursor: &Cursor<'_, 'a, T, S>,
    problem: &str,
    run: RefcountRecord,
) -> vfs::Error {
    let RefcountRecord { start, len, count, .. } = run;
    let what = format!("{problem}: {len} from {start}, reference count {count}");
    cursor.in_tree(Corruption::new("reference count tree", what)).into()
}
