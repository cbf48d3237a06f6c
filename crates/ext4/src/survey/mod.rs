//! What lies where on the device, for those who draw a map of it.
//!
//! - `system` has what lies at fixed places, and what the bitmaps say is free.
//! - `inodes` reads the inodes in use, in the order of their places, and tells of what is theirs.
//! - `maps` walks all of a map: extents or pointers.
//!
//! All is read through the cache, so that it is what the file system sees. With `bigalloc` whole clusters are told of,
//! because whoever has a block of one has all of it.

mod inodes;
mod maps;
mod system;

use std::ops::ControlFlow;

use vfs::Result;
use vfs::survey::{Extent, Kind, LogState, Shape, Sink, TellsLayout};

use crate::Ext4;
use crate::format::address::{Block, Group};
use crate::format::features::{Compat, Incompat};

impl TellsLayout for Ext4 {
    fn shape(&self) -> Result<Shape> {
        let geometry = self.geometry();
        Ok(Shape {
            block_size: geometry.block_size(),
            blocks: geometry.blocks_count,
            group_blocks: geometry.blocks_per_group.into(),
            groups: geometry.groups_count.into(),
            log: self.log_state(),
            left_out: None,
        })
    }

    fn tell_layout(&self, sink: &mut dyn Sink) {
        let mut teller = Teller::new(self, sink);
        if teller.system().is_continue() {
            // Whether it went to its end knows who ended it.
            let _ = teller.inodes();
        }
    }
}

impl Ext4 {
    fn log_state(&self) -> LogState {
        let sb = self.superblock_found();
        if sb.features.incompat(Incompat::JOURNAL_DEV) || sb.raw.journal_dev.get() != 0 {
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

/// A survey that is under way.
struct Teller<'t> {
    fs: &'t Ext4,
    sink: &'t mut dyn Sink,
    /// Blocks of inodes that may still be told of: as many as the bitmaps have in use. A damaged image in which many
    /// inodes claim the same ends there.
    budget: u64,
    /// Blocks of attributes that were told of: several inodes may have one.
    attributes: std::collections::HashSet<u64>,
}

impl<'t> Teller<'t> {
    fn new(fs: &'t Ext4, sink: &'t mut dyn Sink) -> Self {
        let budget = fs.geometry().blocks_count;
        Self { fs, sink, budget, attributes: std::collections::HashSet::new() }
    }

    fn tell(&mut self, start: u64, len: u64, kind: Kind) {
        if len > 0 {
            self.sink.extent(Extent { start, len, kind });
        }
    }

    fn remark(&mut self, what: std::fmt::Arguments<'_>, error: &dyn std::fmt::Display) {
        self.sink.remark(format!("{what}: {error}"));
    }

    /// Says that a group is done, in one of two passes.
    fn progress(&mut self, pass: u64, group: Group) -> ControlFlow<()> {
        let groups = u64::from(self.fs.geometry().groups_count);
        self.sink.progress(pass * groups + u64::from(group.0) + 1, 2 * groups)
    }

    /// The clusters that some blocks lie in, as blocks; the last one may reach beyond the end.
    fn clusters(&self, start: Block, len: u64) -> (u64, u64) {
        let geometry = self.fs.geometry();
        let (first, log) = (u64::from(geometry.first_data_block), geometry.cluster_blocks_log);
        let whole = |block: u64| first + (block.saturating_sub(first) >> log << log);
        let from = if start.0 < first { start.0 } else { whole(start.0) };
        let end = whole(start.plus(len).0 + (1 << log) - 1);
        (from, end.min(geometry.blocks_count))
    }
}
