//! Discarding free blocks on the device.

use std::ops::Range;

use operations::RunOperations;
use vfs::{Error, Result};

use super::bitmap::{self, Bits};
use super::guard::Bitmaps as _;
use crate::Ext4Core;
use crate::format::address::{Block, Group};

/// Maximum number of runs that are discarded while a group is held, so that other operations do not wait long.
const RUNS_AT_ONCE: usize = 64;

/// The blocks to discard.
struct Wanted {
    blocks: Range<Block>,
    len_min: u64,
}

impl Ext4Core {
    /// Implements [`vfs::FileSystem::trim`]. First makes everything durable, so that blocks freed before are no longer
    /// busy.
    pub(crate) fn trim_free(&self, bytes: Range<u64>, len_min: u64) -> Result<u64> {
        self.check_writable()?;
        self.engine.sync()?;
        let geometry = &self.volume.geometry;
        let log = geometry.block_size_log;
        let end = Block((bytes.end >> log).min(geometry.blocks_count));
        let start = Block(bytes.start.div_ceil(1 << log));
        let wanted = Wanted { blocks: start..end, len_min: len_min.div_ceil(1 << log).max(1) };
        let mut trimmed = 0;
        for group in geometry.groups() {
            let first = geometry.first_block(group);
            if first >= end || first.plus(geometry.blocks_per_group.into()) <= start {
                continue;
            }
            let mut from = Some(0);
            while let Some(bit) = from {
                from = self.trim_some(group, bit, &wanted, &mut trimmed)?;
            }
        }
        Ok(trimmed << log)
    }

    /// Discards some free runs of a group, starting at bit `from`. Returns the bit to continue from. Skips busy blocks,
    /// because a crash would return them to their file.
    fn trim_some(
        &self,
        group: Group,
        from: u32,
        wanted: &Wanted,
        trimmed: &mut u64,
    ) -> Result<Option<u32>> {
        let volume = &self.volume;
        let geometry = &volume.geometry;
        self.observe(|op| {
            let at = op.hold(group)?;
            let bitmap = op.group_guards[at].copy_block_bitmap(volume, &mut op.txn)?;
            let bits = Bits { bitmap: &bitmap, busy: op.group_guards[at].busy() };
            let len = geometry.blocks_in(group) >> geometry.cluster_blocks_log;
            let first = geometry.first_block(group);
            let block = |bit: u32| first.plus(u64::from(bit) << geometry.cluster_blocks_log);
            let mut bit = from;
            for _ in 0..RUNS_AT_ONCE {
                let Some(run) = bitmap::next_free_run(bits, bit, len) else { return Ok(None) };
                bit = run.end;
                let start = block(run.start).max(wanted.blocks.start);
                let count = block(run.end).min(wanted.blocks.end).0.saturating_sub(start.0);
                if count < wanted.len_min {
                    continue;
                }
                volume.check_blocks(start, count)?;
                self.engine.check_alive()?;
                let bytes = (geometry.byte_of(start), count << geometry.block_size_log);
                self.engine.device().discard(bytes.0, bytes.1).map_err(Error::of_discard)?;
                *trimmed += count;
            }
            Ok(Some(bit))
        })
    }
}
