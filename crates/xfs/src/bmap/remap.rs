//! Entering blocks that are there already into a fork, and taking them out without freeing them. The
//! reverse map follows.

use vfs::{Corruption, Result};

use super::change::{one, without};
use super::convert::subtract_blocks;
use super::{Extent, check, lookup};
use crate::alloc::Owner;
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::op::Op;

impl Op<'_> {
    /// Maps an extent into a hole of a fork.
    pub(crate) fn enter_extent(
        &mut self,
        handle: &mut Handle,
        fork: Fork,
        extent: Extent,
    ) -> Result<()> {
        check(self, handle, fork, &extent)?;
        let (before, next) = lookup(self, handle, fork, extent.offset)?;
        let is_hole = before.is_none_or(|before| before.end() <= extent.offset);
        if !is_hole || extent.end() > next {
            let damage = Corruption::new("extent", "blocks to be mapped where there are some");
            let found = format_args!("blocks within {} from {} on", extent.len, extent.offset);
            return Err(damage.of_inode(handle.ino().0).mismatch("a hole", found).into());
        }
        self.change_joined(handle, fork, None, one(extent))?;
        handle.inode.set_nblocks(handle.inode.nblocks() + extent.len);
        let (lease, owner) = self.owner_in_group(handle, fork, &extent)?;
        let start = self.fs.volume.geometry.split(extent.start).1;
        self.rmap_add(lease, start, extent.len as u32, owner)
    }

    /// Unmaps an extent, which must be mapped as it says: whether it is unwritten is not looked at.
    pub(crate) fn take_extent(
        &mut self,
        handle: &mut Handle,
        fork: Fork,
        wanted: Extent,
    ) -> Result<()> {
        let mut at = wanted.offset;
        while at < wanted.end() {
            let (whole, _) = lookup(self, handle, fork, at)?;
            let part = whole.and_then(|whole| whole.part(at, wanted.end()));
            let place = wanted.start.plus(at.0 - wanted.offset.0);
            let (Some(whole), Some(part)) = (whole, part.filter(|part| part.start == place)) else {
                let damage = Corruption::new("extent", "blocks to be unmapped that are not mapped");
                let expected = format_args!("block {at} at {place}");
                let found = format!("{whole:?}");
                return Err(damage.of_inode(handle.ino().0).mismatch(expected, found).into());
            };
            check(self, handle, fork, &whole)?;
            self.replace_extents(handle, fork, &[whole], &without(&whole, &part))?;
            subtract_blocks(handle, part.len)?;
            let (lease, owner) = self.owner_in_group(handle, fork, &part)?;
            let start = self.fs.volume.geometry.split(part.start).1;
            self.rmap_remove(lease, start, part.len as u32, owner)?;
            at = part.end();
        }
        Ok(())
    }

    /// The group that has an extent, held, and whom the extent belongs to.
    fn owner_in_group(
        &mut self,
        handle: &Handle,
        fork: Fork,
        extent: &Extent,
    ) -> Result<(usize, Owner)> {
        let lease = self.lease(self.fs.volume.geometry.split(extent.start).0)?;
        // A change of the reverse map lives off the AGFL.
        self.adjust_agfl(lease)?;
        let (ino, offset, unwritten) = (handle.ino(), extent.offset.0, extent.unwritten);
        Ok((lease, Owner::Fork { ino, fork, offset, unwritten }))
    }
}
