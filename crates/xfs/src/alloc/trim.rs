//! Giving free blocks back to the device.

use std::ops::Range;

use smallvec::SmallVec;
use vfs::reserve::Claim;
use vfs::{Error, Result};

use crate::Xfs;
use crate::btree::records::{BnoTree, FreeRun};
use crate::btree::{Cursor, Seek};
use crate::format::address::{AgBlock, AgNumber, Block};
use crate::op::Op;

/// Free runs that are given back while a group is held, so that nobody waits for it for long.
const RUNS_AT_ONCE: usize = 64;

/// Which blocks are to be given back.
struct Wanted {
    blocks: Range<Block>,
    len_min: u64,
}

/// Parts of free runs of a group, as first block and length.
type Parts = SmallVec<[(AgBlock, u32); RUNS_AT_ONCE]>;

impl Xfs {
    /// What [`vfs::FileSystem::trim`] does. First everything is made durable, so that what was removed
    /// before is free for good.
    pub(crate) fn trim_free(&self, bytes: Range<u64>, len_min: u64) -> Result<u64> {
        self.check_writable()?;
        self.engine.sync()?;
        let geometry = &self.volume.geometry;
        let log = geometry.block_log;
        let blocks = Block(bytes.start.div_ceil(1 << log))..Block(bytes.end >> log);
        let wanted = Wanted { blocks, len_min: len_min.div_ceil(1 << log).max(1) };
        let mut trimmed = 0;
        for ag in geometry.ags() {
            let mut from = Some(AgBlock(0));
            while let Some(at) = from {
                from = self.trim_some(ag, at, &wanted, &mut trimmed)?;
            }
        }
        Ok(trimmed << log)
    }

    /// Gives some free runs of a group back, from one block on; the block to go on at. Blocks that wait
    /// for a checkpoint are not free yet: a crash would give them to their file again.
    fn trim_some(
        &self,
        ag: AgNumber,
        from: AgBlock,
        wanted: &Wanted,
        trimmed: &mut u64,
    ) -> Result<Option<AgBlock>> {
        let geometry = &self.volume.geometry;
        // Dropped without an end, for it changes nothing.
        let mut op = Op::begin(self, Claim::Ordinary)?;
        let lease = op.lease(ag)?;
        let (parts, next) = op.free_parts(lease, from)?;
        for (start, len) in parts {
            let first = geometry.block_of(ag, start);
            let start = first.max(wanted.blocks.start);
            let end = Block(first.0 + u64::from(len)).min(wanted.blocks.end);
            let count = end.0.saturating_sub(start.0);
            if count < wanted.len_min {
                continue;
            }
            self.engine.check_alive()?;
            let bytes = (geometry.byte_of(start), count << geometry.block_log);
            self.engine.device().discard(bytes.0, bytes.1).map_err(Error::of_discard)?;
            *trimmed += count;
        }
        Ok(next)
    }
}

impl Op<'_> {
    /// Runs of a group that are free and not busy, from one block on; and where to go on, if that was
    /// not all.
    fn free_parts(&mut self, lease: usize, from: AgBlock) -> Result<(Parts, Option<AgBlock>)> {
        let mut runs: SmallVec<[FreeRun; RUNS_AT_ONCE]> = SmallVec::new();
        let mut cursor = Cursor::<BnoTree>::of_group(self, lease);
        let mut run = cursor.seek(from, Seek::AtLeast)?;
        while let Some(found) = run.filter(|_| runs.len() < RUNS_AT_ONCE) {
            runs.push(found);
            run = cursor.next()?;
        }
        let next = run.map(|run| run.start);
        let mut parts = Parts::new();
        for run in runs {
            let whole = self.checked_run(lease, Some(run))?;
            let Some(end) = whole.and_then(|run| u32::try_from(run.end()).ok()) else { continue };
            let busy = self.leases[lease].busy();
            let clean = busy.clean_parts(run.start.0..end);
            parts.extend(clean.map(|part| (AgBlock(part.start), part.end - part.start)));
        }
        Ok((parts, next))
    }
}
