//! Totals of space and inodes.

use vfs::{NAME_LEN_MAX, StatFs};

use crate::Xfs;

impl Xfs {
    /// Totals, from what the groups say. Space that is free can become inodes, so all of it counts as
    /// free inodes too, as far as the superblock lets inodes have it.
    pub(crate) fn totals(&self) -> StatFs {
        let geometry = &self.volume.geometry;
        let raw = &self.volume.sb.raw;
        let (mut blocks_free, mut inodes, mut inodes_free) = (0, 0, 0);
        for summary in geometry.ags().map(|ag| self.volume.ags.summary(ag)) {
            blocks_free += u64::from(summary.freeblks);
            inodes += u64::from(summary.icount);
            inodes_free += u64::from(summary.ifree);
        }
        // An external log takes nothing of the data device.
        let log = if raw.logstart.get() == 0 { 0 } else { u64::from(raw.logblocks.get()) };
        let per_block_log = geometry.inodes_per_block_log();
        let share = geometry.blocks / 100 * u64::from(raw.imax_pct);
        let inodes_max = if raw.imax_pct == 0 { u64::MAX } else { share << per_block_log };
        let used = inodes.saturating_sub(inodes_free);
        let inodes = (inodes + (blocks_free << per_block_log)).min(inodes_max).max(inodes);
        StatFs {
            block_size: geometry.block_size() as u32,
            blocks: geometry.blocks.saturating_sub(log),
            blocks_free,
            blocks_available: blocks_free,
            inodes,
            inodes_free: inodes - used,
            name_len_max: NAME_LEN_MAX as u32,
        }
    }
}
