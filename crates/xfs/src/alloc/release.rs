//! Giving back: what an operation freed is done when it commits, in the order of the groups.

use smallvec::SmallVec;
use vfs::{Corruption, Error, Result};

use super::Freed;
use crate::alloc::ags::AgTree;
use crate::btree::records::RefcountTree;
use crate::btree::{Cursor, Seek};
use crate::format::address::{AgBlock, AgNumber};
use crate::inode::Handle;
use crate::op::Op;

impl Op<'_> {
    /// Makes free what was noted as freed. All groups are held first, in ascending order.
    pub(crate) fn finish_frees(&mut self) -> Result<()> {
        if self.freed.is_empty() && self.freed_inodes.is_empty() {
            return Ok(());
        }
        let mut freed = std::mem::take(&mut self.freed);
        let mut inodes = std::mem::take(&mut self.freed_inodes);
        freed.sort_unstable_by_key(|freed| freed.start);
        inodes.sort_unstable_by_key(Handle::ino);
        self.lease_all(&freed, &inodes)?;
        for freed in &freed {
            self.finish_free(freed)?;
        }
        for handle in inodes {
            self.finish_free_inode(handle)?;
        }
        Ok(())
    }

    fn lease_all(&mut self, freed: &[Freed], inodes: &[Handle]) -> Result<()> {
        let geometry = self.fs.volume.geometry;
        let mut groups = SmallVec::<[AgNumber; 8]>::new();
        for freed in freed {
            if !geometry.contains(freed.start, freed.len.into()) {
                let what = format!("{} blocks from {} on", freed.len, freed.start);
                let damage = Corruption::new("extent", "blocks freed outside of a group");
                return Err(damage.mismatch("blocks of one group", what).into());
            }
            groups.push(geometry.split(freed.start).0);
        }
        groups.extend(inodes.iter().filter_map(|h| geometry.split_ino(h.ino())).map(|(ag, _)| ag));
        groups.sort_unstable();
        groups.dedup();
        groups.into_iter().try_for_each(|ag| self.lease(ag).map(drop))
    }

    fn finish_free(&mut self, freed: &Freed) -> Result<()> {
        if freed.len == 0 {
            return Ok(());
        }
        let (ag, start) = self.fs.volume.geometry.split(freed.start);
        let lease = self.lease(ag)?;
        self.require_unshared(lease, start, freed.len)?;
        self.free_in(lease, start, freed.len, freed.owner)
    }

    /// Makes blocks of a group free that belong to `owner` alone.
    pub(crate) fn free_in(
        &mut self,
        lease: usize,
        start: AgBlock,
        len: u32,
        owner: super::Owner,
    ) -> Result<()> {
        self.adjust_agfl(lease)?;
        self.rmap_remove(lease, start, len, owner)?;
        self.give_space(lease, start, len)
    }

    /// Refuses to free blocks that other files have, too.
    fn require_unshared(&mut self, lease: usize, start: AgBlock, len: u32) -> Result<()> {
        if self.leases[lease].root(AgTree::Refcount).levels == 0 {
            return Ok(());
        }
        let end = u64::from(start.0) + u64::from(len);
        let mut cursor = Cursor::<RefcountTree>::of_group(self, lease);
        // Runs that are kept for copying on write come after all shared ones.
        let last = cursor.seek((false, AgBlock((end - 1) as u32)), Seek::AtMost)?;
        let shared = last.is_some_and(|run| {
            !run.cow && u64::from(run.start.0) + u64::from(run.len) > start.0.into()
        });
        if shared {
            let what = "freeing blocks that files share (reflink)";
            return Err(Error::unsupported(what, "remove such files with a kernel"));
        }
        Ok(())
    }
}
