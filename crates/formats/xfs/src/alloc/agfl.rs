//! The AGFL: blocks reserved for the free-space trees and the reverse map, so that a change of free space never has to
//! allocate recursively.
//!
//! It is a ring of block numbers in its own sector; the AGF stores which entries are valid. In the reverse map its
//! blocks have the same owner as those of the trees that it supplies. So moving a block between the list and a tree
//! does not change the reverse map.

use engine::Corruption;
use operations::Outcome;
use vfs::Error;

use super::held::HeldAg;
use super::{RmapOwner, headers};
use crate::format::address::AgBlock;
use crate::format::ag;
use crate::format::bytes::{be32, put32};

impl HeldAg<'_, '_> {
    /// Removes a block from the AGFL and returns it.
    pub(super) fn pop_agfl(&mut self) -> Outcome<AgBlock> {
        let geometry = self.volume.geometry;
        let state = **self.guard;
        if state.flcount == 0 {
            // Each change fills the list first, so there were no free blocks to fill it with.
            return Err(Error::NoSpace.into());
        }
        let ag = self.number();
        let (id, start) = headers::buffer(&geometry, self.txn, ag, ag::AGFL_SECTOR)?;
        let entry = start + ag::agfl_entries(&geometry) + state.flfirst as usize * size_of::<u32>();
        let block = be32(self.txn.data(id), entry);
        let (headers_end, _) = ag::sector_place(&geometry, ag::AGFL_SECTOR);
        if block <= headers_end || block >= state.length {
            let damage = Corruption::new("AGFL", "an invalid block")
                .mismatch(format_args!("{} to {}", headers_end + 1, state.length), block);
            return Err(self.txn.corrupt(id, damage.in_group(ag.0.into())).into());
        }
        self.guard.flfirst = (state.flfirst + 1) % ag::agfl_capacity(&geometry);
        self.guard.flcount -= 1;
        Ok(AgBlock(block))
    }

    /// Adds a block to the AGFL.
    pub(crate) fn push_agfl(&mut self, block: AgBlock) -> Outcome<()> {
        let geometry = self.volume.geometry;
        let capacity = ag::agfl_capacity(&geometry);
        let state = **self.guard;
        let ag = self.number();
        if state.flcount >= capacity {
            // Each change first trims the list, and no tree frees that many blocks at once.
            let damage = Corruption::new("AGFL", "more blocks than the maximum");
            return Err(damage.in_group(ag.0.into()).into());
        }
        let last = (state.fllast + 1) % capacity;
        let (id, start) = headers::buffer(&geometry, self.txn, ag, ag::AGFL_SECTOR)?;
        let entry = start + ag::agfl_entries(&geometry) + last as usize * size_of::<u32>();
        put32(self.txn.edit(id, entry..entry + size_of::<u32>()), 0, block.0);
        self.guard.fllast = last;
        self.guard.flcount += 1;
        Ok(())
    }

    /// Fills the AGFL for one change of free space, as far as there are free blocks. Frees blocks of a list that is
    /// much too long.
    pub(crate) fn adjust_agfl(&mut self) -> Outcome<()> {
        let needed_now = self.guard.agfl_needed();
        // The list may be somewhat longer than needed, so that a tree that alternately shrinks and grows does not move
        // blocks back and forth.
        if self.guard.flcount > 2 * needed_now {
            while self.guard.flcount > needed_now {
                let block = self.pop_agfl()?;
                self.rmap_remove(block, 1, RmapOwner::Ag)?;
                self.give_space(block, 1)?;
            }
        }
        // Allocating a run may itself use entries of the list, but far fewer than the run provides.
        while self.guard.flcount < self.guard.agfl_needed() {
            let wanted = self.guard.agfl_needed() - self.guard.flcount;
            let Some(run) = self.smallest_run(wanted)? else { return Ok(()) };
            let len = run.len.min(wanted);
            self.take_space(run, run.start, len)?;
            self.rmap_add(run.start, len, RmapOwner::Ag)?;
            for at in 0..len {
                self.push_agfl(AgBlock(run.start.0 + at))?;
            }
        }
        Ok(())
    }
}
