//! Discarding free blocks on the device.

use operations::{Outcome, RunOperations};
use std::ops::Range;

use smallvec::SmallVec;
use vfs::{Error, Result};

use super::held::HeldAg;
use crate::XfsCore;
use crate::btree::Seek;
use crate::btree::records::{BnoTree, FreeRun};
use crate::format::address::{AgBlock, AgNumber, Block};

/// Maximum number of free runs discarded while a group is held, so that other operations do not wait long.
const RUNS_AT_ONCE: usize = 64;

/// The part of the file system whose free blocks are to be discarded.
struct TrimRange {
    blocks: Range<Block>,
    /// Minimum length of a run to discard, in blocks.
    len_min: u64,
}

/// Parts of free runs of a group: first block and length.
type Parts = SmallVec<[(AgBlock, u32); RUNS_AT_ONCE]>;

impl XfsCore {
    /// Implements [`vfs::FileSystem::trim`]. Syncs first, so that blocks freed before are not busy.
    pub(crate) fn trim_free(&self, bytes: Range<u64>, len_min: u64) -> Result<u64> {
        self.check_writable()?;
        self.engine.sync()?;
        let geometry = &self.volume.geometry;
        let log = geometry.block_log;
        let blocks = Block(bytes.start.div_ceil(1 << log))..Block(bytes.end >> log);
        let range = TrimRange { blocks, len_min: len_min.div_ceil(1 << log).max(1) };
        let mut trimmed = 0;
        for ag in geometry.ags() {
            let mut from = Some(AgBlock(0));
            while let Some(at) = from {
                from = self.trim_some(ag, at, &range, &mut trimmed)?;
            }
        }
        Ok(trimmed << log)
    }

    /// Discards some free runs of a group, starting at `from`. Returns the block to continue at. Busy blocks are
    /// skipped: a crash would return them to their file.
    fn trim_some(
        &self,
        ag: AgNumber,
        from: AgBlock,
        range: &TrimRange,
        trimmed: &mut u64,
    ) -> Result<Option<AgBlock>> {
        let geometry = &self.volume.geometry;
        self.observe(|op| {
            let (parts, next) = op.ag(ag)?.free_parts(from)?;
            for (start, len) in parts {
                let first = geometry.block_of(ag, start);
                let start = first.max(range.blocks.start);
                let end = Block(first.0 + u64::from(len)).min(range.blocks.end);
                let count = end.0.saturating_sub(start.0);
                if count < range.len_min {
                    continue;
                }
                self.engine.check_alive()?;
                let bytes = (geometry.byte_of(start), count << geometry.block_log);
                self.engine.device().discard(bytes.0, bytes.1).map_err(Error::of_discard)?;
                *trimmed += count;
            }
            Ok(next)
        })
    }
}

impl HeldAg<'_, '_> {
    /// Returns some runs from block `from` on that are free and not busy, and the block to continue at if there may be
    /// more.
    fn free_parts(&mut self, from: AgBlock) -> Outcome<(Parts, Option<AgBlock>)> {
        let mut runs: SmallVec<[FreeRun; RUNS_AT_ONCE]> = SmallVec::new();
        let mut cursor = self.cursor::<BnoTree>();
        let mut run = cursor.seek(from, Seek::AtLeast)?;
        while let Some(found) = run.filter(|_| runs.len() < RUNS_AT_ONCE) {
            runs.push(found);
            run = cursor.next()?;
        }
        let next = run.map(|run| run.start);
        let mut parts = Parts::new();
        for run in runs {
            let whole = self.checked_run(Some(run))?;
            let Some(end) = whole.and_then(|run| u32::try_from(run.end()).ok()) else { continue };
            let busy = self.busy();
            let clean = busy.clean_parts(run.start.0..end);
            parts.extend(clean.map(|part| (AgBlock(part.start), part.end - part.start)));
        }
        Ok((parts, next))
    }
}
