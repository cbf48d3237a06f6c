//! Free space of the realtime section, without groups: the bitmap, its summary and the count of free extents.
//!
//! The section is the last group of [`Ags`](super::ags::Ags). An operation holds it like any other group, in ascending
//! order. So its count is undone with the operation, and its freed extents are busy until they are durably free.
//!
//! INVARIANT: bitmap and summary change only in operations that hold this group.

mod change;
mod load;
mod search;
mod space;

use std::ops::Range;
use std::sync::atomic::Ordering;

use engine::Corruption;
use operations::Outcome;
use vfs::Error;

pub(crate) use self::space::{RealtimeSpace, group_of};
use crate::format::address::FsBlock;
use crate::format::realtime::Realtime;
use crate::op::Op;

/// The realtime section held by an operation.
pub(crate) struct HeldRealtime<'o, 'a> {
    op: &'o mut Op<'a>,
    space: &'a RealtimeSpace,
    /// Index of the group among those held.
    group: usize,
}

impl<'a> Op<'a> {
    /// Holds the realtime section until the end of the operation.
    fn realtime(&mut self) -> Outcome<HeldRealtime<'_, 'a>> {
        let fs = self.fs;
        let Some(space) = fs.volume.realtime.get() else {
            let advice = "open the image for changes";
            return Err(Error::unsupported("allocating realtime extents", advice).into());
        };
        let group = self.group_guards.hold(group_of(&fs.volume.geometry))?;
        Ok(HeldRealtime { op: self, space, group })
    }

    /// Allocates 1 to `max_len` contiguous realtime extents, after block `near` of the device if that is given and
    /// possible. Returns the first block and the number of blocks.
    pub(crate) fn allocate_realtime(
        &mut self,
        near: Option<u64>,
        max_len: u64,
    ) -> Outcome<(FsBlock, u64)> {
        let mut held = self.realtime()?;
        let of_extent = u64::from(held.section().extent_blocks());
        let near = near.map(|block| block / of_extent);
        let run = held.allocate(near, max_len)?;
        Ok((FsBlock(run.start * of_extent), (run.end - run.start) * of_extent))
    }

    /// Frees blocks of the realtime device, which must be whole realtime extents.
    pub(super) fn finish_free_realtime(&mut self, block: u64, len: u64) -> Outcome<()> {
        let mut held = self.realtime()?;
        let of_extent = u64::from(held.section().extent_blocks());
        if !block.is_multiple_of(of_extent) || !len.is_multiple_of(of_extent) {
            let found = format_args!("{len} blocks from {block}").to_string();
            let damage = Corruption::new("extent", "freed parts of realtime extents");
            let expected = format_args!("multiples of {of_extent} blocks").to_string();
            return Err(damage.mismatch(expected, found).into());
        }
        held.free(block / of_extent..(block + len) / of_extent)
    }
}

impl HeldRealtime<'_, '_> {
    const fn section(&self) -> &Realtime {
        &self.space.realtime
    }

    fn allocate(&mut self, near: Option<u64>, max_len: u64) -> Outcome<Range<u64>> {
        let last = &self.space.cursor.0;
        let near = near.unwrap_or_else(|| last.load(Ordering::Relaxed));
        let Some(run) = self.find(near, max_len)? else { return Err(Error::NoSpace.into()) };
        self.take(run.clone())?;
        last.store(run.end, Ordering::Relaxed);
        Ok(run)
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
            self.op.group_guards[self.group].add_busy(run.start as u32..run.end as u32);
        }
        let (len, most) = (run.end - run.start, self.space.layout.extents());
        self.change_count(|count| count.checked_add(len).filter(|count| *count <= most))
    }

    fn change_count(&mut self, change: impl FnOnce(u64) -> Option<u64>) -> Outcome<()> {
        let state = &mut *self.op.group_guards[self.group];
        let Some(count) = change(state.frextents) else {
            let damage = Corruption::new("superblock", "frextents differs from the bitmap");
            return Err(Error::from(damage).into());
        };
        state.frextents = count;
        Ok(())
    }
}
