//! Blocks kept for copying on write: they are in the tree of references, apart from the shared ones, and
//! in the reverse map, and in no file. Kernels take them before they write, and enter them into the file
//! after. What a crash leaves of them is nobody's.

use transaction::Corruption;
use vfs::Result;

use crate::Xfs;
use crate::alloc::Owner;
use crate::alloc::ags::AgTree;
use crate::btree::records::{RefcountRecord, RefcountTree};
use crate::btree::{Cursor, Seek};
use crate::format::address::{AgBlock, AgNumber};
use crate::op::Op;

/// Runs of blocks that one operation frees.
const FREED_PER_OP_MAX: usize = 64;

impl Xfs {
    /// Frees all blocks that are kept for copying on write. Nobody may be copying.
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
    /// Enters blocks, which nobody has, as kept for copying on write. The reverse map is left to the
    /// caller.
    pub(crate) fn stage_blocks(&mut self, lease: usize, start: AgBlock, len: u32) -> Result<()> {
        self.adjust_agfl(lease)?;
        let new = RefcountRecord { start, cow: true, len, count: 1 };
        let mut cursor = Cursor::<RefcountTree>::of_group(self, lease);
        let before = cursor.seek((true, start), Seek::AtMost)?;
        let after = cursor.seek((true, start), Seek::AtLeast)?;
        let overlaps = before.is_some_and(|run| run.cow && run.end() > start.0.into())
            || after.is_some_and(|run| u64::from(run.start.0) < new.end());
        if overlaps {
            return Err(self.staged_damage(lease, "blocks kept for copying that are kept", new));
        }
        let mut cursor = Cursor::<RefcountTree>::of_group(self, lease);
        cursor.seek((true, start), Seek::Exactly)?;
        cursor.insert(new)?;
        self.join_references(lease, true, new.end())?;
        self.join_references(lease, true, start.0.into())
    }

    /// Takes out that blocks are kept for copying on write, which must be entered. The reverse map is
    /// left to the caller.
    pub(crate) fn unstage_blocks(&mut self, lease: usize, start: AgBlock, len: u32) -> Result<()> {
        self.adjust_agfl(lease)?;
        let part = RefcountRecord { start, cow: true, len, count: 1 };
        let mut cursor = Cursor::<RefcountTree>::of_group(self, lease);
        let whole = cursor.seek((true, start), Seek::AtMost)?;
        let whole = whole.filter(|run| run.cow && run.count == 1 && run.end() >= part.end());
        let Some(whole) = whole else {
            return Err(self.staged_damage(lease, "blocks that are not kept for copying", part));
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

    /// Frees some of the blocks of a group that are kept for copying on write. Whether that was all.
    fn free_some_staged(&mut self, ag: AgNumber) -> Result<bool> {
        let lease = self.lease(ag)?;
        if self.leases[lease].root(AgTree::Refcount).levels == 0 {
            return Ok(true);
        }
        for _ in 0..FREED_PER_OP_MAX {
            let mut cursor = Cursor::<RefcountTree>::of_group(self, lease);
            let Some(run) = cursor.seek((true, AgBlock(0)), Seek::AtLeast)? else {
                return Ok(true);
            };
            if run.len == 0 || run.count != 1 || run.end() > self.leases[lease].length.into() {
                return Err(self.staged_damage(lease, "blocks kept for copying", run));
            }
            self.unstage_blocks(lease, run.start, run.len)?;
            self.free_in(lease, run.start, run.len, Owner::Staged)?;
        }
        Ok(false)
    }

    fn staged_damage(&self, lease: usize, problem: &str, run: RefcountRecord) -> vfs::Error {
        let RefcountRecord { start, len, count, .. } = run;
        let what = format!("{problem}: {len} from {start} on, counted {count}");
        let ag = self.leases[lease].number();
        Corruption::new("tree of references", what).in_group(ag.0.into()).into()
    }
}
