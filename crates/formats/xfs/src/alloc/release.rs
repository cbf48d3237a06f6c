//! Freeing. An operation notes what it frees, and frees it at its commit, in ascending order of groups.

use operations::Outcome;
use smallvec::SmallVec;
use vfs::Corruption;

use super::held::HeldAg;
use super::{Freed, RmapOwner, realtime};
use crate::format::address::{AgBlock, AgNumber};
use crate::inode::Handle;
use crate::op::Op;

impl Op<'_> {
    /// Frees the extents and inodes noted by the operation. Holds all their groups first, in ascending order.
    pub(crate) fn finish_frees(&mut self) -> Outcome<()> {
        // Freeing realtime extents may free blocks of trees.
        while !self.freed.is_empty() || !self.freed_inodes.is_empty() {
            self.finish_noted_frees()?;
        }
        Ok(())
    }

    fn finish_noted_frees(&mut self) -> Outcome<()> {
        let mut freed = std::mem::take(&mut self.freed);
        let mut inodes = std::mem::take(&mut self.freed_inodes);
        freed.sort_unstable_by_key(|freed| freed.start);
        inodes.sort_unstable_by_key(Handle::ino);
        self.hold_all(&freed, &inodes)?;
        for freed in &freed {
            self.finish_free(freed)?;
        }
        for handle in inodes.drain(..) {
            self.finish_free_inode(handle)?;
        }
        Ok(())
    }

    fn hold_all(&mut self, freed: &[Freed], inodes: &[Handle]) -> Outcome<()> {
        let geometry = self.fs.volume.geometry;
        let mut groups = SmallVec::<[AgNumber; 8]>::new();
        for freed in freed {
            if let (Some(section), Some(block)) = (geometry.realtime, freed.start.realtime()) {
                groups.push(realtime::group_of(&geometry, section.locate(block).0));
                continue;
            }
            if !geometry.contains(freed.start, freed.len.into()) {
                let what = format!("{} blocks from {}", freed.len, freed.start);
                let damage = Corruption::new("extent", "freed blocks outside a group");
                return Err(damage.mismatch("blocks of one group", what).into());
            }
            groups.push(geometry.split(freed.start).0);
        }
        groups.extend(inodes.iter().filter_map(|h| geometry.split_ino(h.ino())).map(|(ag, _)| ag));
        groups.sort_unstable();
        groups.dedup();
        groups.into_iter().try_for_each(|ag| self.ag(ag).map(drop))
    }

    fn finish_free(&mut self, freed: &Freed) -> Outcome<()> {
        if freed.len == 0 {
            return Ok(());
        }
        if let Some(block) = freed.start.realtime() {
            return self.finish_free_realtime(freed, block);
        }
        let (ag, start) = self.fs.volume.geometry.split(freed.start);
        let mut ag = self.ag(ag)?;
        // Filled first, because the reverse map and the free-space trees take their blocks from the AGFL.
        ag.adjust_agfl()?;
        ag.rmap_remove(start, freed.len, freed.owner)?;
        ag.drop_references(start, freed.len)
    }
}

impl HeldAg<'_, '_> {
    /// Frees blocks of a single owner.
    pub(crate) fn free_in(&mut self, start: AgBlock, len: u32, owner: RmapOwner) -> Outcome<()> {
        self.adjust_agfl()?;
        self.rmap_remove(start, len, owner)?;
        self.give_space(start, len)
    }

    /// Frees blocks of any owner. The reverse map may have no owner for them any more.
    pub(crate) fn free_disowned(&mut self, start: AgBlock, len: u32) -> Outcome<()> {
        self.adjust_agfl()?;
        self.rmap_disown(start, len)?;
        self.give_space(start, len)
    }
}
