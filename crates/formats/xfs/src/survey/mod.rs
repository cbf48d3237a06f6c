//! Reports the use of blocks on the device, for drawing maps.
//!
//! - `groups` reads headers, the trees of allocation groups, free space, and inode chunks.
//! - `inodes` reads the inodes in use, in the order of their locations, and reports their blocks.
//! - `group_trees` reports the trees of realtime groups.
//! - `tree` walks trees.
//!
//! Shared blocks are reported once, from the reference-count tree. For files that may share blocks, that tree is
//! searched, so nothing must be remembered. Everything is read through the cache, so the survey sees the same state as
//! the file system.

mod group_trees;
mod groups;
mod inodes;
pub(crate) mod tree;

use std::ops::ControlFlow;

use disk::DeviceRole;
use vfs::Result;
use vfs::survey::{BlockUse, Extent, ImageGeometry, LogState, Sink};

use crate::XfsCore;
use crate::format::address::{AgNumber, FsBlock};

impl XfsCore {
    /// Returns the size and structure of the image.
    pub(crate) fn shape(&self) -> Result<ImageGeometry> {
        let geometry = self.geometry();
        let has_realtime = self.superblock().raw.rblocks.get() != 0;
        Ok(ImageGeometry {
            block_size: geometry.block_size() as u32,
            blocks: geometry.blocks,
            group_blocks: geometry.ag_blocks.into(),
            groups: geometry.ag_count.into(),
            log: self.log_state()?,
            left_out: has_realtime.then_some("data on the realtime device is left out"),
        })
    }

    /// Reports all blocks.
    pub(crate) fn tell_layout(&self, sink: &mut dyn Sink) {
        let mut teller = Teller { fs: self, sink, budget: self.geometry().blocks };
        if teller.groups().is_continue() {
            // The sink itself has stopped the survey, so the result is not needed.
            let _ = teller.inodes();
        }
    }

    fn log_state(&self) -> Result<LogState> {
        let sb = self.superblock_found();
        if sb.raw.logstart.get() == 0 && self.device().part_len(DeviceRole::Log).is_none() {
            return Ok(LogState::Elsewhere);
        }
        if self.log.is_some() {
            // It was opened with its log, whose changes are now written back.
            return Ok(if self.recovered.transactions > 0 {
                LogState::Replayed
            } else {
                LogState::Clean
            });
        }
        Ok(match crate::log_end(&**self.device(), sb)? {
            Some(end) if end.is_clean => LogState::Clean,
            Some(_) => LogState::Ignored,
            None => LogState::Unreadable,
        })
    }
}

/// A running survey.
struct Teller<'t> {
    fs: &'t XfsCore,
    sink: &'t mut dyn Sink,
    /// Number of inodes' blocks that may still be reported: as many as are in use, without shared ones. It limits the
    /// work on a damaged image in which many inodes claim the same blocks.
    budget: u64,
}

impl Teller<'_> {
    fn tell(&mut self, start: u64, len: u64, kind: BlockUse) {
        if len > 0 {
            self.sink.extent(Extent { start, len, kind });
        }
    }

    /// Reports blocks that are within one group, given as in pointers.
    fn tell_of(&mut self, start: FsBlock, len: u64, kind: BlockUse) {
        self.tell(self.fs.geometry().device_block(start).0, len, kind);
    }

    fn remark(&mut self, what: std::fmt::Arguments<'_>, error: &dyn std::fmt::Display) {
        self.sink.remark(format!("{what}: {error}"));
    }

    /// Reports that a group is done, in one of two passes.
    fn progress(&mut self, pass: u64, ag: AgNumber) -> ControlFlow<()> {
        let groups = u64::from(self.fs.geometry().ag_count);
        self.sink.progress(pass * groups + u64::from(ag.0) + 1, 2 * groups)
    }
}
