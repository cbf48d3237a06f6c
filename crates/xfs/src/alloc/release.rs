//! Giving back: what an operation freed is done when it commits, in the order of the groups.

use smallvec::SmallVec;
use vfs::{Corruption, Result};

use super::Freed;
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
        for handle in inodes.drain(..) {
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
        self.adjust_agfl(lease)?;
        self.rmap_remove(lease, start, freed.len, freed.owner)?;
        self.drop_references(lease, start, freed.len)
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

    /// Makes blocks of a group free, whoever has them or had them: the reverse map may have let go of
    /// them already.
    pub(crate) fn free_disowned(&mut self, lease: usize, start: AgBlock, len: u32) -> Result<()> {
        self.adjust_agfl(lease)?;
        self.rmap_disown(lease, start, len)?;
        self.give_space(lease, start, len)
    }
}
