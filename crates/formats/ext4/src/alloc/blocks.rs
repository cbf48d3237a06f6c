//! Allocation of runs of clusters. Without `bigalloc`, a cluster is a block.

use operations::Outcome;
use std::ops::Range;

use operations::reserve::Claim;
use vfs::Error;

use super::bitmap::{self, Bits};
use super::guard::Bitmaps as _;
use crate::format::address::{Block, Group};
use crate::op::{Op, Patience};

/// A run of this length is taken even if more was requested: 8 MiB with clusters of 4 KiB.
const GOOD_RUN_CLUSTERS: u32 = 2048;

impl Op<'_> {
    /// Allocates up to `wanted` clusters in one run, at `goal` or as close after it as possible. Returns the first
    /// block and the number of clusters, at least 1.
    pub(crate) fn allocate_clusters(&mut self, goal: Block, wanted: u32) -> Outcome<(Block, u32)> {
        self.allocate_behind(goal, 0, wanted)
    }

    /// Allocates clusters like [`Self::allocate_clusters`], but leaves `free` clusters before them free, from `goal` on.
    /// If no run near the goal is so long, none are left.
    pub(crate) fn allocate_behind(
        &mut self,
        goal: Block,
        free: u32,
        wanted: u32,
    ) -> Outcome<(Block, u32)> {
        let geometry = &self.fs.volume.geometry;
        let home = Group(geometry.group_of(goal).0.min(geometry.groups_count - 1));
        let groups = &self.fs.volume.groups;
        let start = groups.block_spill(home);
        let good = wanted.min(GOOD_RUN_CLUSTERS);
        for (good_enough, patience) in
            [(good, Patience::AtHome), (1, Patience::AtHome), (1, Patience::Everywhere)]
        {
            for group in groups.from(start) {
                if self.usable_blocks(group) < good_enough
                    || self.hold_patiently(group, home, patience)?.is_none()
                {
                    continue;
                }
                let from = if group == home { geometry.bit_of(goal) } else { 0 };
                if let Some(run) = self.allocate_run(group, from, (free, wanted), good_enough)? {
                    groups.set_block_spill(home, group);
                    let skipped = u64::from(run.start) << geometry.cluster_blocks_log;
                    let first = geometry.first_block(group).plus(skipped);
                    return Ok((first, run.end - run.start));
                }
            }
        }
        Err(Error::NoSpace.into())
    }

    /// Returns the number of clusters of a group that this operation may take.
    fn usable_blocks(&self, group: Group) -> u32 {
        match self.group_guards.find(group) {
            Some(guard) => guard.usable_blocks(self.claim),
            None => self.fs.volume.groups.usable_blocks(group, self.claim),
        }
    }

    /// Allocates a run in one group: the first run of `wanted` clusters from bit `from` on, else from the start of the
    /// group, else the longest run if it has at least `good_enough` clusters. Leaves `free` clusters before the run free
    /// if such a run exists.
    fn allocate_run(
        &mut self,
        group: Group,
        from: u32,
        (free, wanted): (u32, u32),
        good_enough: u32,
    ) -> Outcome<Option<Range<u32>>> {
        let volume = &self.fs.volume;
        let at = self.hold(group)?;
        let guard = &mut self.group_guards[at];
        let usable = guard.usable_blocks(self.claim);
        if usable < good_enough {
            return Ok(None);
        }
        let id = guard.block_bitmap(volume, &mut self.txn)?;
        let bits = Bits { bitmap: self.txn.data(id), busy: guard.busy() };
        // A cluster that the end of the file system cuts short is never allocated.
        let len = volume.geometry.blocks_in(group) >> volume.geometry.cluster_blocks_log;
        let first_free = guard.first_free_block;
        let from = from.max(first_free);
        let find = |wanted: u32| {
            let run = bitmap::find_free_run(bits, from, len, wanted);
            if from > first_free && run.as_ref().is_none_or(|r| r.end - r.start < good_enough) {
                return bitmap::find_free_run(bits, first_free, len, wanted);
            }
            run
        };
        let all = wanted.saturating_add(free);
        let found = if free > 0 { find(all).filter(|r| r.end - r.start == all) } else { None };
        let run = found.map(|r| r.start + free..r.end).or_else(|| find(wanted));
        let Some(mut run) = run.filter(|r| r.end - r.start >= good_enough) else { return Ok(None) };
        if run.end - run.start > guard.usable_blocks(Claim::Unbounded) {
            return Err(guard.corrupt("block bitmap", "more free blocks than counted").into());
        }
        // The reserve is a number of clusters, not a set of particular ones.
        let taken = usable.min(run.end - run.start);
        run.end = run.start + taken;
        let window = bitmap::bytes_of(&run);
        let base = window.start as u32 * 8;
        bitmap::set(self.txn.edit(id, window), base, run.clone());
        guard.desc.free_blocks -= taken;
        if run.start <= guard.first_free_block {
            guard.first_free_block = run.end;
        }
        Ok(Some(run))
    }
}
