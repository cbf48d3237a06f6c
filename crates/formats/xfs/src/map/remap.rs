//! Mapping blocks that are already in use, and unmapping blocks without freeing them. Updates the reverse map.

use operations::Outcome;
use vfs::Corruption;

use super::change::{one, without};
use super::fork::ForkMap;
use super::{Extent, may_share};
use crate::alloc::HeldAg;
use crate::format::address::AgBlock;
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
    ) -> Outcome<()> {
        self.map(handle, fork).enter(extent)
    }

    /// Returns how many of the first blocks of an extent of the data fork are within `budget`, which is reduced by the
    /// number of runs with one reference count.
    pub(crate) fn alike_of_file(
        &mut self,
        handle: &mut Handle,
        extent: &Extent,
        budget: &mut u32,
    ) -> Outcome<u64> {
        if !may_share(handle) {
            *budget = budget.saturating_sub(1);
            return Ok(extent.len);
        }
        let start = self.map(handle, Fork::Data).device_address(extent)?;
        self.alike_at_start(start, extent.len, budget)
    }

    /// Unmaps an extent, which must be mapped at its offset. Its unwritten flag is ignored.
    pub(crate) fn take_extent(
        &mut self,
        handle: &mut Handle,
        fork: Fork,
        wanted: Extent,
    ) -> Outcome<()> {
        self.map(handle, fork).take_out(wanted)
    }
}

impl<'a> ForkMap<'_, 'a> {
    fn enter(&mut self, extent: Extent) -> Outcome<()> {
        self.check(&extent)?;
        let (before, next) = self.lookup(extent.offset)?;
        let is_hole = before.is_none_or(|before| before.end() <= extent.offset);
        if !is_hole || extent.end() > next {
            let damage = Corruption::new("extent", "mapping blocks over existing ones");
            let found = format_args!("blocks within {} from {}", extent.len, extent.offset);
            let damage = damage.of_inode(self.handle.ino().0);
            return Err(damage.mismatch("a hole", found).into());
        }
        self.change_joined(None, one(extent))?;
        let inode = &mut self.handle.inode;
        inode.set_nblocks(inode.nblocks() + extent.len);
        self.note_realtime(extent.len as i64);
        let owner = self.owner_of(&extent);
        if self.realtime()?.is_some() {
            return self.op.own_realtime(extent.start, extent.len, owner);
        }
        let (mut ag, start) = self.ag_of(&extent)?;
        ag.rmap_add(start, extent.len as u32, owner)
    }

    fn take_out(&mut self, wanted: Extent) -> Outcome<()> {
        let mut at = wanted.offset;
        while at < wanted.end() {
            let (whole, _) = self.lookup(at)?;
            let part = whole.and_then(|whole| whole.part(at, wanted.end()));
            let place = wanted.start.plus(at.0 - wanted.offset.0);
            let (Some(whole), Some(part)) = (whole, part.filter(|part| part.start == place)) else {
                let damage = Corruption::new("extent", "unmapping blocks that are not mapped");
                let expected = format_args!("block {at} at {place}");
                let found = format!("{whole:?}");
                let damage = damage.of_inode(self.handle.ino().0);
                return Err(damage.mismatch(expected, found).into());
            };
            self.check(&whole)?;
            self.replace_extents(&[whole], &without(&whole, &part))?;
            self.subtract_mapped(part.len)?;
            at = part.end();
            let owner = self.owner_of(&part);
            if self.realtime()?.is_some() {
                self.op.disown_realtime_at(part.start, part.len, owner)?;
                continue;
            }
            let (mut ag, start) = self.ag_of(&part)?;
            ag.rmap_remove(start, part.len as u32, owner)?;
        }
        Ok(())
    }

    /// Holds the group that contains an extent, for a change of its reverse map. Returns the group and the first block
    /// in it.
    fn ag_of(&mut self, extent: &Extent) -> Outcome<(HeldAg<'_, 'a>, AgBlock)> {
        let (ag, start) = self.op.fs.volume.geometry.split(extent.start);
        let mut ag = self.op.ag(ag)?;
        // The reverse map takes its blocks from the AGFL.
        ag.adjust_agfl()?;
        Ok((ag, start))
    }
}
