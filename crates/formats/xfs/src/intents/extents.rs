//! Intents about extents: EFI, RUI, CUI, BUI.
//!
//! Kernels log an intent for each consequence of a change. Blocks freed by an EFI were removed from the reverse map by
//! an earlier RUI, or are removed by the EFI itself. A BUI changes an extent map, and the reverse map changes in the
//! same operation: kernels log that intent only when they finish the BUI. The same applies to blocks that lose their
//! last reference in a CUI.

use operations::Outcome;
use vfs::Corruption;

use crate::alloc::HeldAg;
use crate::btree::records::{RmapRecord, rmap_offset, rmap_owner};
use crate::format::address::AgBlock;
use crate::format::inode::Fork;
use crate::format::log::intent::{
    BmapChange, BmapKind, ExtentRun, RefcountChange, RefcountKind, RmapChange, RmapKind,
};
use crate::inode::Handle;
use crate::map::{Extent, is_realtime};
use crate::op::Op;

impl<'a> Op<'a> {
    /// Frees blocks.
    pub(super) fn finish_frees_of(&mut self, runs: &[ExtentRun]) -> Outcome<()> {
        for run in runs {
            if let Some((group, start)) = self.realtime_of(run) {
                self.free_realtime_disowned(group, start, run.len)?;
                continue;
            }
            let (mut ag, start) = self.ag_of_run(run)?;
            ag.free_disowned(start, run.len)?;
        }
        Ok(())
    }

    /// Returns the realtime group of a run of blocks, and the first block in it; `None` for blocks of the image.
    fn realtime_of(&self, run: &ExtentRun) -> Option<(u32, AgBlock)> {
        let (block, realtime) = (run.start.realtime()?, self.fs.volume.geometry.realtime?);
        let (group, block) = realtime.locate(block);
        Some((group, AgBlock(block as u32)))
    }

    /// Holds the group that contains a run of blocks. Returns the group and the first block in it. Refuses blocks of
    /// the log, which only the reverse map shows as in use.
    fn ag_of_run(&mut self, run: &ExtentRun) -> Outcome<(HeldAg<'_, 'a>, AgBlock)> {
        let sb = &self.fs.volume.sb.raw;
        let (log, len) = (sb.logstart.get(), u64::from(sb.logblocks.get()));
        let has_log = log != 0;
        if has_log && run.start.0 < log + len && run.start.0 + u64::from(run.len) > log {
            let found = format_args!("{} blocks from {}", run.len, run.start);
            let damage = Corruption::new("intent", "blocks of the log");
            return Err(damage.mismatch("blocks of files", found).into());
        }
        let (ag, start) = self.fs.volume.geometry.split(run.start);
        Ok((self.ag(ag)?, start))
    }

    /// Changes the reverse map.
    pub(super) fn finish_rmap_change(&mut self, change: &RmapChange) -> Outcome<()> {
        if let Some((group, start)) = self.realtime_of(&change.run) {
            return self.finish_realtime_rmap_change(change, group, start);
        }
        let (mut ag, start) = self.ag_of_run(&change.run)?;
        ag.adjust_agfl()?;
        let is_special = rmap_owner::is_none_of_inodes(change.owner);
        let is_data = !is_special && !change.is_bmbt && change.fork == Fork::Data;
        let may_hide = change.kind.is_shared() || is_data;
        let record = |unwritten| record_of(change, start, unwritten);
        if matches!(change.kind, RmapKind::Map | RmapKind::Allocate) {
            ag.rmap_check_nobody(start, change.run.len)?;
        }
        match change.kind {
            RmapKind::Map | RmapKind::MapShared | RmapKind::Allocate => {
                ag.rmap_enter(record(change.unwritten), may_hide)
            }
            RmapKind::Unmap | RmapKind::UnmapShared | RmapKind::Free => {
                ag.rmap_take_out(record(change.unwritten), may_hide)
            }
            RmapKind::Convert | RmapKind::ConvertShared => {
                ag.rmap_take_out(record(!change.unwritten), may_hide)?;
                ag.rmap_enter(record(change.unwritten), may_hide)
            }
        }
    }

    /// Changes the reverse map of a realtime group.
    fn finish_realtime_rmap_change(
        &mut self,
        change: &RmapChange,
        group: u32,
        start: AgBlock,
    ) -> Outcome<()> {
        let record = |unwritten| record_of(change, start, unwritten);
        match change.kind {
            RmapKind::Map | RmapKind::Allocate => {
                self.check_realtime_nobody(group, start, change.run.len)?;
                self.enter_realtime(group, record(change.unwritten), true)
            }
            RmapKind::MapShared => self.enter_realtime(group, record(change.unwritten), true),
            RmapKind::Unmap | RmapKind::UnmapShared | RmapKind::Free => {
                self.take_out_realtime(group, record(change.unwritten))
            }
            RmapKind::Convert | RmapKind::ConvertShared => {
                self.take_out_realtime(group, record(!change.unwritten))?;
                self.enter_realtime(group, record(change.unwritten), true)
            }
        }
    }

    /// Changes reference counts.
    pub(super) fn finish_refcount_change(&mut self, change: &RefcountChange) -> Outcome<()> {
        let len = change.run.len;
        if let Some((group, start)) = self.realtime_of(&change.run) {
            return match change.kind {
                RefcountKind::Increase => self.add_realtime_references(group, start, len),
                RefcountKind::Decrease => self.drop_realtime_references(group, start, len),
                RefcountKind::AllocateCow => self.stage_realtime(group, (start, len), true),
                RefcountKind::FreeCow => self.stage_realtime(group, (start, len), false),
            };
        }
        let (mut ag, start) = self.ag_of_run(&change.run)?;
        match change.kind {
            RefcountKind::Increase => ag.add_references(start, len),
            RefcountKind::Decrease => ag.drop_references(start, len),
            RefcountKind::AllocateCow => ag.stage_blocks(start, len),
            RefcountKind::FreeCow => ag.unstage_blocks(start, len),
        }
    }

    /// Changes the extent map of a fork.
    pub(super) fn finish_bmap_change(
        &mut self,
        before: &Handle,
        change: &BmapChange,
    ) -> Outcome<()> {
        if change.is_realtime != is_realtime(before, change.fork) {
            let damage = Corruption::new("intent", "the device of its blocks");
            let found = if change.is_realtime { "the realtime device" } else { "the image" };
            let damage = damage.of_inode(change.ino.0);
            return Err(damage.mismatch("the device of its inode", found).into());
        }
        if !change.is_realtime {
            self.ag_of_run(&change.run)?;
        }
        let mut handle = before.clone();
        let extent = Extent {
            offset: change.offset,
            start: change.run.start,
            len: change.run.len.into(),
            unwritten: change.unwritten,
        };
        match change.kind {
            BmapKind::Map => self.enter_extent(&mut handle, change.fork, extent)?,
            BmapKind::Unmap => self.take_extent(&mut handle, change.fork, extent)?,
        }
        self.stage(handle);
        Ok(())
    }
}

/// Returns the reverse-map record of a change.
fn record_of(change: &RmapChange, start: AgBlock, unwritten: bool) -> RmapRecord {
    let is_special = rmap_owner::is_none_of_inodes(change.owner);
    RmapRecord {
        start,
        len: change.run.len,
        owner: change.owner,
        offset: if is_special { 0 } else { offset_of(change, unwritten) },
    }
}

/// Returns offset and flags as in a reverse-map record of an inode.
fn offset_of(change: &RmapChange, unwritten: bool) -> u64 {
    let fork = if change.fork == Fork::Attr { rmap_offset::ATTR_FORK } else { 0 };
    let rest = if change.is_bmbt {
        rmap_offset::BMBT_BLOCK
    } else {
        let state = if unwritten { rmap_offset::UNWRITTEN } else { 0 };
        change.offset.0 & rmap_offset::MASK | state
    };
    fork | rest
}
