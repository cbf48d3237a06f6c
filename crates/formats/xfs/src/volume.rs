//! Facts shared by every part of an open file system: its superblock, geometry and groups.

use std::sync::{Arc, OnceLock};

use disk::BlockDevice;
use engine::{BlockFormat, Changed, Corruption, Tag, Txn};
use vfs::StatFs;

use crate::alloc::ags::{Ag, AgState, Ags};
use crate::alloc::headers::{self, Totals};
use crate::alloc::realtime::{RealtimeSection, group_of};
use crate::dir::DirStates;
use crate::format::address::Block;
use crate::format::geometry::Geometry;
use crate::format::superblock::Superblock;
use crate::kind;
use crate::quota::Quotas;

/// Fixed facts of an open file system, and its groups.
pub(crate) struct Volume {
    pub(crate) sb: Superblock,
    pub(crate) geometry: Geometry,
    pub(crate) ags: Ags,
    /// Quotas that are counted; not set if none are.
    pub(crate) quotas: OnceLock<Quotas>,
    /// The realtime section of an image that is open for changes.
    pub(crate) realtime: OnceLock<RealtimeSection>,
    /// Number of used blocks of a zoned section, if they were counted.
    pub(crate) zone_blocks_used: OnceLock<u64>,
}

/// Maximum length of a name in bytes (`MAXNAMELEN` without the terminating zero).
const NAME_LEN_MAX: u32 = 255;
/// Largest sector size, in bytes, and so the number of bytes read to parse the superblock.
const SECTOR_SIZE_MAX: u64 = 32 << 10;

impl Volume {
    /// Reads and checks the superblock and the group headers.
    pub(crate) fn read(device: &dyn BlockDevice) -> vfs::Result<Self> {
        let sb = read_superblock(device)?;
        let geometry = Geometry::new(&sb);
        let states = headers::read(device, &geometry, 0..geometry.ag_count)?;
        let ags = Ags::new(&geometry, states, sb.raw.frextents.get());
        Ok(Self::new(sb, geometry, ags))
    }

    /// Creates a volume without quotas, and without its realtime section.
    pub(crate) fn new(sb: Superblock, geometry: Geometry, ags: Ags) -> Self {
        Self {
            sb,
            geometry,
            ags,
            quotas: OnceLock::new(),
            realtime: OnceLock::new(),
            zone_blocks_used: OnceLock::new(),
        }
    }

    /// Returns the superblock's counts, summed over all groups. Groups are read one after another, so the sum is not a
    /// snapshot.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for ag in self.geometry.ags() {
            let summary = self.ags.summary(ag);
            totals.icount += u64::from(summary.icount);
            totals.ifree += u64::from(summary.ifree);
            totals.freeblks += u64::from(summary.freeblks);
            totals.fdblocks += u64::from(summary.freeblks) + u64::from(summary.reserve);
        }
        totals
    }

    /// Returns the maximum number of inodes that chunks may be allocated for (`sb_imax_pct`, a percentage of all
    /// blocks).
    pub(crate) fn icount_max(&self) -> u64 {
        let per_block = self.geometry.inodes_per_block_log();
        let most = u64::MAX >> per_block;
        match u64::from(self.sb.raw.imax_pct) {
            0 => most << per_block,
            percent => {
                let blocks = u128::from(self.geometry.blocks) * u128::from(percent) / 100;
                u64::try_from(blocks).unwrap_or(most).min(most) << per_block
            }
        }
    }

    /// Returns the number of free blocks that ordinary operations may take.
    fn blocks_available(&self) -> u64 {
        self.geometry.ags().map(|ag| u64::from(self.ags.summary(ag).available)).sum()
    }

    /// Returns the totals for `statfs`. The count of free inodes is limited by free space, without the reserve if
    /// `is_reserve`.
    pub(crate) fn statfs(&self, is_reserve: bool) -> StatFs {
        let totals = self.totals();
        let available = if is_reserve { self.blocks_available() } else { totals.freeblks };
        let room = available.saturating_mul(1 << self.geometry.inodes_per_block_log());
        let inodes = (totals.icount + room).min(self.icount_max()).max(totals.icount);
        let log = match self.sb.raw.logstart.get() {
            0 => 0,
            _ => u64::from(self.sb.raw.logblocks.get()),
        };
        StatFs {
            block_size: self.block_size() as u32,
            blocks: self.geometry.blocks.saturating_sub(log),
            blocks_free: totals.freeblks,
            blocks_available: available,
            blocks_for_contents: available,
            inodes,
            inodes_free: inodes - totals.icount.saturating_sub(totals.ifree),
            name_len_max: NAME_LEN_MAX,
        }
    }

    /// Returns totals with the space of the realtime section, which has `free` free blocks, if there is one.
    pub(crate) fn realtime_statfs(&self, totals: StatFs, free: u64) -> StatFs {
        let Some(realtime) = &self.geometry.realtime else { return totals };
        StatFs {
            blocks: realtime.extents() * u64::from(realtime.extent_blocks()),
            blocks_free: free,
            blocks_available: free,
            blocks_for_contents: free,
            ..totals
        }
    }

    /// Returns the block size in bytes.
    pub(crate) fn block_size(&self) -> usize {
        self.geometry.block_size()
    }
}

/// Reads and checks the superblock.
pub(crate) fn read_superblock(device: &dyn BlockDevice) -> vfs::Result<Superblock> {
    let mut sector = vec![0; SECTOR_SIZE_MAX.min(device.len()) as usize];
    device.read_at(0, &mut sector).map_err(vfs::Error::Device)?;
    Superblock::parse(&sector, device.len())
}

/// Hooks of the engine: verifies and seals blocks, and writes deferred changes into them.
pub(crate) struct Backing {
    pub(crate) volume: Arc<Volume>,
    pub(crate) dirs: Arc<DirStates>,
    /// True if each checkpoint updates the superblock's totals. Not needed with a log: after a crash they are computed
    /// from the groups (`lazysbcount`).
    pub(crate) keeps_totals: bool,
}

impl BlockFormat for Backing {
    fn verify(&self, tag: Tag, block: u64, data: &[u8]) -> Result<(), Corruption> {
        let geometry = &self.volume.geometry;
        kind::verify(geometry, tag, Block(block), data).map_err(|c| c.at_block(block))
    }

    fn seal(
        &self,
        tag: Tag,
        block: u64,
        changed: Changed,
        data: &mut [u8],
    ) -> Result<(), Corruption> {
        let geometry = &self.volume.geometry;
        kind::seal(geometry, tag, Block(block), changed, data).map_err(|c| c.at_block(block))
    }

    /// Merges buffered names into the hash indexes of their directories, writes the usage of quotas, then counts into
    /// the group headers.
    fn flush_deferred(&self, txn: &mut Txn<'_>) -> engine::Result<()> {
        let geometry = &self.volume.geometry;
        self.volume.ags.close_busy();
        self.dirs.flush_deferred(geometry, txn)?;
        if let Some(quotas) = self.volume.quotas.get() {
            quotas.flush_deferred(geometry, txn)?;
        }
        let mut has_realtime_changes = false;
        let write = |ag, _: &Ag, state: &mut AgState| {
            if ag >= group_of(geometry, 0) {
                has_realtime_changes = true;
                return Ok(());
            }
            headers::write(geometry, txn, ag, state)
        };
        let has_changes = self.volume.ags.flush_dirty(write)?;
        if has_realtime_changes {
            let free = self.volume.ags.free_realtime(geometry);
            headers::write_realtime_count(geometry, txn, free)?;
        }
        if !has_changes || !self.keeps_totals {
            return Ok(());
        }
        headers::write_totals(geometry, txn, &self.volume.totals())
    }

    fn durable(&self) {
        self.volume.ags.release_busy();
    }

    fn deferred_blocks(&self) -> usize {
        self.dirs.deferred_blocks() + self.volume.quotas.get().map_or(0, Quotas::deferred_blocks)
    }
}
