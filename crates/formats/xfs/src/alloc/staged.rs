//! Blocks staged for copy on write. They have records of their own in the reference-count tree and an owner in the
//! reverse map, but belong to no file. Kernels allocate them before they write, and map them into the file afterwards.
//! A crash may leave some behind.

use engine::Corruption;
use operations::Outcome;
use operations::RunOperations;
use vfs::Result;

use super::Owner;
use super::ags::AgTree;
use super::held::HeldAg;
use crate::XfsCore;
use crate::btree::Seek;
use crate::btree::records::{RefcountRecord, RefcountTree};
use crate::format::address::{AgBlock, AgNumber};
use crate::op::Op;

/// Number of runs that one operation frees.
const FREED_PER_OP_MAX: usize = 64;

impl XfsCore {
    /// Frees all blocks staged for copy on write. No copy on write may be in progress.
    ///
    /// # Errors
    /// `Corrupt` if the trees contradict each other about them; if the device fails.
    pub(crate) fn free_staged(&self) -> Result<()> {
        for ag in self.volume.geometry.ags() {
            while !self.atomically_freeing(|op| op.free_some_staged(ag))? {}
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
            let first = ag.cursor::<RefcountTree>().seek((true, AgBlock(0)), Seek::AtLeast)?;
            let Some(run) = first else { return Ok(true) };
            if run.len == 0 || run.count != 1 || run.end() > ag.guard.length.into() {
                return Err(ag.staged_damage("copy-on-write blocks", run).into());
            }
            ag.unstage_blocks(run.start, run.len)?;
            ag.free_in(run.start, run.len, Owner::Staged)?;
        }
        Ok(false)
    }
}

impl HeldAg<'_, '_> {
    /// Records blocks without an owner as staged for copy on write. The caller changes the reverse map.
    pub(crate) fn stage_blocks(&mut self, start: AgBlock, len: u32) -> Outcome<()> {
        self.adjust_agfl()?;
        let new = RefcountRecord { start, cow: true, len, count: 1 };
        let mut cursor = self.cursor::<RefcountTree>();
        let before = cursor.seek((true, start), Seek::AtMost)?;
        let after = cursor.seek((true, start), Seek::AtLeast)?;
        let overlaps = before.is_some_and(|run| run.cow && run.end() > start.0.into())
            || after.is_some_and(|run| u64::from(run.start.0) < new.end());
        if overlaps {
            return Err(self.staged_damage("copy-on-write blocks staged twice", new).into());
        }
        let mut cursor = self.cursor::<RefcountTree>();
        cursor.seek((true, start), Seek::Exactly)?;
        cursor.insert(new)?;
        self.join_references(true, new.end())?;
        self.join_references(true, start.0.into())
    }

    /// Removes blocks from the staged ones. They must be staged. The caller changes the reverse map.
    pub(crate) fn unstage_blocks(&mut self, start: AgBlock, len: u32) -> Outcome<()> {
        self.adjust_agfl()?;
        let part = RefcountRecord { start, cow: true, len, count: 1 };
        let mut cursor = self.cursor::<RefcountTree>();
        let whole = cursor.seek((true, start), Seek::AtMost)?;
        let whole = whole.filter(|run| run.cow && run.count == 1 && run.end() >= part.end());
        let Some(whole) = whole else {
            return Err(self
                .staged_damage("blocks that are not staged for copy-on-write", part)
                .into());
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

    fn staged_damage(&self, problem: &str, run: RefcountRecord) -> vfs::Error {
        let RefcountRecord { start, len, count, .. } = run;
        let what = format!("{problem}: {len} from {start}, reference count {count}");
        let ag = self.number();
        Corruption::new("reference count tree", what).in_group(ag.0.into()).into()
    }
}
