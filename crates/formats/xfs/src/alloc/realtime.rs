//! Free space of the realtime section: bitmaps, their summaries and the count of free extents.
//!
//! Realtime groups, or the section without groups, are the last groups of [`Ags`](super::ags::Ags). An operation holds
//! them like any other group, in ascending order. So the count is undone with the operation, and freed extents are busy
//! until they are durably free. Owners and references of the blocks of groups are in [`trees`].
//!
//! INVARIANT: the bitmap, the summary and the trees of a group change only in operations that hold it.

mod change;
mod held_tree;
mod load;
mod search;
mod space;
mod trees;
mod zones;

use std::ops::Range;
use std::sync::atomic::Ordering;

use engine::Corruption;
use operations::Outcome;
use vfs::Error;

pub(crate) use self::held_tree::HeldTree;
use self::space::RealtimeSpace;
pub(crate) use self::space::{RealtimeSection, group_of};

use super::Freed;
use crate::format::address::{AgBlock, FsBlock};
use crate::op::Op;

/// A realtime group, or the section without groups, held by an operation.
pub(crate) struct HeldRealtime<'o, 'a> {
    op: &'o mut Op<'a>,
    space: &'a RealtimeSpace,
    /// Index of the group among those held.
    group: usize,
}

impl<'a> Op<'a> {
    /// Returns the realtime section.
    fn section(&self) -> Outcome<&'a RealtimeSection> {
        self.fs.volume.realtime.get().ok_or_else(|| {
            let advice = "open the image for changes";
            Error::unsupported("allocating realtime extents", advice).into()
        })
    }

    /// Holds a group of the realtime section until the end of the operation.
    fn realtime(&mut self, number: u32) -> Outcome<HeldRealtime<'_, 'a>> {
        let section = self.section()?;
        let Some(space) = section.spaces.get(number as usize) else {
            let damage = Corruption::new("extent", "a realtime group");
            let expected = format_args!("below {}", section.groups()).to_string();
            return Err(Error::from(damage.mismatch(expected, number)).into());
        };
        let group = self.group_guards.hold(group_of(&self.fs.volume.geometry, number))?;
        Ok(HeldRealtime { op: self, space, group })
    }

    /// Allocates 1 to `max_len` contiguous realtime extents, after the block `last` if that is given and possible. The
    /// caller adds their owner. Returns the address and the number of blocks.
    pub(crate) fn allocate_realtime(
        &mut self,
        last: Option<FsBlock>,
        max_len: u64,
    ) -> Outcome<(FsBlock, u64)> {
        let section = self.section()?;
        let realtime = section.realtime;
        let of_extent = u64::from(realtime.extent_blocks());
        let last = last.and_then(|last| realtime.device_block(last, 1));
        let (home, near) = match last.map(|last| realtime.locate(last)) {
            Some((group, block)) => (group, Some(block / of_extent + 1)),
            None => (section.last_group.load(Ordering::Relaxed), None),
        };
        // A much shorter run is accepted only if no group has a longer one.
        for enough in [max_len.div_ceil(2), 1] {
            for at in 0..section.groups() {
                let number = (home + at) % section.groups();
                let mut held = self.realtime(number)?;
                let near = near.filter(|_| at == 0);
                let enough = enough.min(held.space.layout.extents());
                let Some(run) = held.allocate(near, max_len, enough)? else { continue };
                section.last_group.store(number, Ordering::Relaxed);
                let start = realtime.address(number, run.start * of_extent);
                return Ok((start, (run.end - run.start) * of_extent));
            }
        }
        Err(Error::NoSpace.into())
    }

    /// Frees blocks of the realtime device, which must be whole realtime extents. Removes their owner, if they are in a
    /// group.
    pub(super) fn finish_free_realtime(&mut self, freed: &Freed, block: u64) -> Outcome<()> {
        let (number, start) = self.section()?.realtime.locate(block);
        let Ok(start) = u32::try_from(start) else {
            return self.free_realtime_blocks(number, start, freed.len.into());
        };
        let start = AgBlock(start);
        self.disown_realtime(number, start, freed.len, freed.owner)?;
        self.drop_realtime_references(number, start, freed.len)
    }

    /// Marks blocks of a group as free, which must be whole realtime extents.
    fn free_realtime_blocks(&mut self, number: u32, start: u64, len: u64) -> Outcome<()> {
        let mut held = self.realtime(number)?;
        let of_extent = u64::from(held.space.realtime.extent_blocks());
        if !start.is_multiple_of(of_extent) || !len.is_multiple_of(of_extent) {
            let found = format_args!("{len} blocks from {start}").to_string();
            let damage = Corruption::new("extent", "freed parts of realtime extents");
            let expected = format_args!("multiples of {of_extent} blocks").to_string();
            return Err(damage.mismatch(expected, found).into());
        }
        held.free(start / of_extent..(start + len) / of_extent)
    }
}

impl HeldRealtime<'_, '_> {
    /// Allocates `enough` to `max_len` extents, if the group has as many together.
    fn allocate(
        &mut self,
        near: Option<u64>,
        max_len: u64,
        enough: u64,
    ) -> Outcome<Option<Range<u64>>> {
        let last = &self.space.cursor.0;
        let near = near.unwrap_or_else(|| last.load(Ordering::Relaxed));
        let found = self.find(near, max_len)?;
        let Some(run) = found.filter(|run| run.end - run.start >= enough) else {
            return Ok(None);
        };
        self.take(run.clone())?;
        last.store(run.end, Ordering::Relaxed);
        Ok(Some(run))
    }

    /// Marks free extents as used.
    fn take(&mut self, run: Range<u64>) -> Outcome<()> {
        let whole = self.free_run_around(&run)?;
        self.count_run(whole.clone(), -1)?;
        self.count_run(whole.start..run.start, 1)?;
        self.count_run(run.end..whole.end, 1)?;
        let len = run.end - run.start;
        self.set(run, false)?;
        self.change_count(|count| count.checked_sub(len))
    }

    /// Marks used extents as free.
    fn free(&mut self, run: Range<u64>) -> Outcome<()> {
        if run.end > self.space.layout.extents() {
            let found = format_args!("up to {}", run.end).to_string();
            let damage = Corruption::new("extent", "freed realtime extents");
            return Err(damage.mismatch(self.space.layout.extents(), found).into());
        }
        let whole = self.free_run_around(&run)?;
        self.count_run(whole.start..run.start, -1)?;
        self.count_run(run.end..whole.end, -1)?;
        self.count_run(whole, 1)?;
        self.set(run.clone(), true)?;
        if self.op.fs.engine.has_log() {
            self.make_busy(run.start as u32..run.end as u32);
        }
        let (len, most) = (run.end - run.start, self.space.layout.extents());
        let has_groups = self.space.realtime.has_groups();
        let is_right = |count: &u64| has_groups || *count <= most;
        self.change_count(|count| count.checked_add(len).filter(is_right))
    }

    /// Marks extents as busy until the checkpoint is durable.
    fn make_busy(&mut self, extents: Range<u32>) {
        self.op.group_guards[self.group].add_busy(extents);
    }

    fn change_count(&mut self, change: impl FnOnce(u64) -> Option<u64>) -> Outcome<()> {
        let has_groups = self.space.realtime.has_groups();
        let state = &mut *self.op.group_guards[self.group];
        if has_groups {
            // Only the sum of all groups is known, see `Ags::new`. The bitmap was checked.
            const HALF: u64 = 1 << 62;
            let change = change(HALF).map_or(0, |changed| changed.wrapping_sub(HALF));
            state.frextents = state.frextents.wrapping_add(change);
            return Ok(());
        }
        let Some(count) = change(state.frextents) else {
            let damage = Corruption::new("superblock", "frextents differs from the bitmap");
            return Err(Error::from(damage).into());
        };
        state.frextents = count;
        Ok(())
    }
}
