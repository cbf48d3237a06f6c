//! The AGFL: blocks that are kept ready for the trees of free space and the reverse map, so that a
//! change of free space never has to allocate for itself.
//!
//! It is a ring of block numbers in a sector of its own; the AGF says which entries count. To the
//! reverse map its blocks belong to the group (as those of the trees it feeds), so that a block that
//! moves between list and tree changes nothing there.

use transaction::Corruption;
use vfs::{Error, Result};

use super::headers;
use crate::alloc::Owner;
use crate::format::address::AgBlock;
use crate::format::ag::{self, RawAgfl};
use crate::format::bytes::{be32, put32};
use crate::format::geometry::Geometry;
use crate::op::Op;

/// Entries of an AGFL: the rest of its sector behind the header, which version 4 does not have.
pub(crate) fn capacity(geometry: &Geometry) -> u32 {
    ((geometry.sector_size() - header_size(geometry)) / size_of::<u32>()) as u32
}

fn header_size(geometry: &Geometry) -> usize {
    if geometry.features.crc() { size_of::<RawAgfl>() } else { 0 }
}

impl Op<'_> {
    /// Takes a block off the AGFL.
    pub(super) fn pop_agfl(&mut self, lease: usize) -> Result<AgBlock> {
        let geometry = self.fs.volume.geometry;
        let state = *self.leases[lease];
        if state.flcount == 0 {
            // The list is filled before each change, so there was nothing to fill it with.
            return Err(Error::NoSpace);
        }
        let ag = self.leases[lease].number();
        let (id, start) = headers::buffer(&geometry, &mut self.txn, ag, ag::AGFL_SECTOR)?;
        let entry = start + header_size(&geometry) + state.flfirst as usize * size_of::<u32>();
        let block = be32(self.txn.data(id), entry);
        let (headers_end, _) = ag::sector_place(&geometry, ag::AGFL_SECTOR);
        if block <= headers_end || block >= state.length {
            let damage = Corruption::new("AGFL", "a block that cannot be a tree's")
                .mismatch(format_args!("{} to {}", headers_end + 1, state.length), block);
            return Err(self.txn.corrupt(id, damage.in_group(ag.0.into())).into());
        }
        let lease = &mut self.leases[lease];
        lease.flfirst = (state.flfirst + 1) % capacity(&geometry);
        lease.flcount -= 1;
        Ok(AgBlock(block))
    }

    /// Puts a block onto the AGFL.
    pub(super) fn push_agfl(&mut self, lease: usize, block: AgBlock) -> Result<()> {
        let geometry = self.fs.volume.geometry;
        let capacity = capacity(&geometry);
        let state = *self.leases[lease];
        let ag = self.leases[lease].number();
        if state.flcount >= capacity {
            // It is cut to size before each change, and no tree gives back that many blocks.
            let damage = Corruption::new("AGFL", "more blocks than it can have");
            return Err(damage.in_group(ag.0.into()).into());
        }
        let last = (state.fllast + 1) % capacity;
        let (id, start) = headers::buffer(&geometry, &mut self.txn, ag, ag::AGFL_SECTOR)?;
        let entry = start + header_size(&geometry) + last as usize * size_of::<u32>();
        put32(self.txn.edit(id, entry..entry + size_of::<u32>()), 0, block.0);
        let lease = &mut self.leases[lease];
        lease.fllast = last;
        lease.flcount += 1;
        Ok(())
    }

    /// Makes the AGFL long enough for a change of free space, as far as there are free blocks, and
    /// gives back what it has far too many of.
    pub(crate) fn adjust_agfl(&mut self, lease: usize) -> Result<()> {
        let needed_now = self.leases[lease].agfl_needed();
        // Not at once: a tree that shrinks and grows by turns shall not move blocks to and fro.
        if self.leases[lease].flcount > 2 * needed_now {
            while self.leases[lease].flcount > needed_now {
                let block = self.pop_agfl(lease)?;
                self.rmap_remove(lease, block, 1, Owner::Ag)?;
                self.give_space(lease, block, 1)?;
            }
        }
        // Each run that is taken may itself use some of the list; far fewer than it brings.
        while self.leases[lease].flcount < self.leases[lease].agfl_needed() {
            let wanted = self.leases[lease].agfl_needed() - self.leases[lease].flcount;
            let Some(run) = self.smallest_run(lease, wanted)? else { return Ok(()) };
            let len = run.len.min(wanted);
            self.take_space(lease, run, run.start, len)?;
            self.rmap_add(lease, run.start, len, Owner::Ag)?;
            for at in 0..len {
                self.push_agfl(lease, AgBlock(run.start.0 + at))?;
            }
        }
        Ok(())
    }
}
