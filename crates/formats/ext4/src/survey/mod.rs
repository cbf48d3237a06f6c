//! Reports the use of all blocks of the device, for maps of the disk.
//!
//! - `system` reports metadata at fixed positions, and the free blocks of the bitmaps.
//! - `inodes` reads the inodes in use in inode table order and reports their blocks.
//! - `maps` walks whole block maps: extents or pointers.
//!
//! All reads use the cache, so the result is the file system's view. With `bigalloc` whole clusters are reported,
//! because a file that uses one block of a cluster owns all of it.

mod inodes;
mod maps;
mod system;

use std::ops::ControlFlow;

use disk::DeviceRole;
use vfs::Result;
use vfs::survey::{BlockUse, Extent, ImageGeometry, LogState, Sink};

use crate::Ext4Core;
use crate::format::address::{Block, Group};
use crate::format::features::{Compat, Incompat};

impl Ext4Core {
    /// Returns the size and structure of the image.
    pub(crate) fn shape(&self) -> Result<ImageGeometry> {
        let geometry = self.geometry();
        Ok(ImageGeometry {
            block_size: geometry.block_size(),
            blocks: geometry.blocks_count,
            group_blocks: geometry.blocks_per_group.into(),
            groups: geometry.groups_count.into(),
            log: self.log_state(),
            left_out: None,
        })
    }

    /// Reports all blocks.
    pub(crate) fn tell_layout(&self, sink: &mut dyn Sink) {
        let mut teller = Teller::new(self, sink);
        if teller.system().is_continue() {
            // The sink already knows whether it stopped the survey.
            let _ = teller.inodes();
        }
    }

    fn log_state(&self) -> LogState {
        let sb = self.superblock_found();
        let is_missing = self.engine.device().part_len(DeviceRole::Log).is_none();
        if sb.has_external_journal() && is_missing {
            LogState::Elsewhere
        } else if !sb.features.compat(Compat::HAS_JOURNAL) {
            LogState::None
        } else if !self.needs_recovery() {
            LogState::Clean
        } else if self.superblock().features.incompat(Incompat::RECOVER) {
            LogState::Ignored
        } else {
            LogState::Replayed
        }
    }
}

/// State of a running survey.
struct Teller<'t> {
    fs: &'t Ext4Core,
    sink: &'t mut dyn Sink,
    /// Number of inode blocks that may still be reported: as many as the bitmaps have in use. This limits the work on a
    /// damaged image in which many inodes claim the same blocks.
    budget: u64,
    /// Attribute blocks that were reported: several inodes may share one.
    attributes: std::collections::HashSet<u64>,
}

impl<'t> Teller<'t> {
    fn new(fs: &'t Ext4Core, sink: &'t mut dyn Sink) -> Self {
        let budget = fs.geometry().blocks_count;
        Self { fs, sink, budget, attributes: std::collections::HashSet::new() }
    }

    fn tell(&mut self, start: u64, len: u64, kind: BlockUse) {
        if len > 0 {
            self.sink.extent(Extent { start, len, kind });
        }
    }

    fn remark(&mut self, what: std::fmt::Arguments<'_>, error: &dyn std::fmt::Display) {
        self.sink.remark(format!("{what}: {error}"));
    }

    /// Reports that a group is done in one of two passes.
    fn progress(&mut self, pass: u64, group: Group) -> ControlFlow<()> {
        let groups = u64::from(self.fs.geometry().groups_count);
        self.sink.progress(pass * groups + u64::from(group.0) + 1, 2 * groups)
    }

    /// Extends a run to whole clusters. Returns start and end, where the end is limited to the end of the file system.
    fn clusters(&self, start: Block, len: u64) -> (u64, u64) {
        let geometry = self.fs.geometry();
        let (first, log) = (u64::from(geometry.first_data_block), geometry.cluster_blocks_log);
        let whole = |block: u64| first + (block.saturating_sub(first) >> log << log);
        let from = if start.0 < first { start.0 } else { whole(start.0) };
        let end = whole(start.plus(len).0 + (1 << log) - 1);
        (from, end.min(geometry.blocks_count))
    }
}
