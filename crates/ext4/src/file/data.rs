//! File data on the device.

use std::ops::Range;

use smallvec::SmallVec;
use vfs::{Error, Result};

use crate::Ext4;
use crate::block_map::{Piece, Was};
use crate::format::address::{Block, FileBlock};
use crate::op::{Handle, Op, ZeroedRun};
use crate::read::map::Place;

/// Zeros to write: at least a block of the largest size.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What a device writes as a whole, in bytes.
const SECTOR: u64 = 512;

/// Zeros from which the device is asked to make them, in bytes.
const LONG_ZEROS_FROM: u64 = 1 << 20;

/// A run of a file that lies together on the device.
#[derive(Clone, Copy)]
pub(super) struct DataRun {
    /// The first block in the file.
    pub(super) block: u32,
    pub(super) start: Block,
    pub(super) len: u32,
    /// Whether the device holds what must not be seen.
    pub(super) is_exposed: bool,
    /// Whether it was allocated but not written: the file may have had contents there before, which
    /// a crash brings back.
    pub(super) was_unwritten: bool,
}

/// The runs that an operation works on, in ascending order.
pub(super) type DataRuns = SmallVec<[DataRun; 8]>;

/// Adds a piece behind the runs before it.
pub(super) fn push(runs: &mut DataRuns, block: u32, piece: &Piece) {
    let is_exposed = piece.is_exposed();
    let was_unwritten = piece.was == Was::Unwritten;
    if let Some(last) = runs.last_mut()
        && last.start.plus(u64::from(last.len)) == piece.start
        && last.is_exposed == is_exposed
        && last.was_unwritten == was_unwritten
        && last.block + last.len == block
    {
        last.len += piece.len;
        return;
    }
    runs.push(DataRun { block, start: piece.start, len: piece.len, is_exposed, was_unwritten });
}

impl Ext4 {
    /// Writes file data straight to the device, from byte `within` of a block on.
    pub(super) fn write_data(&self, block: Block, within: u64, data: &[u8]) -> Result<()> {
        let at = self.volume.geometry.byte_of(block) + within;
        self.engine.device().write_at(at, data).map_err(Error::Device)
    }

    /// Zeroes the bytes `from..to`, counted from the start of a block.
    pub(crate) fn write_zeros(&self, block: Block, from: u64, to: u64) -> Result<()> {
        let (mut at, end) = (from, to);
        if end.saturating_sub(at) >= LONG_ZEROS_FROM {
            let first = self.volume.geometry.byte_of(block) + at;
            return self.engine.device().zero_range(first, end - at).map_err(Error::Device);
        }
        while at < end {
            let len = (end - at).min(ZEROS.len() as u64);
            self.write_data(block, at, &ZEROS[..len as usize])?;
            at += len;
        }
        Ok(())
    }

    /// Writes what a run has of `data`, which goes to `offset` of the file; zeros around it if the
    /// run is exposed.
    pub(super) fn write_run(&self, run: &DataRun, offset: u64, data: &[u8]) -> Result<()> {
        let run_start = self.byte_of(run.block);
        let run_len = u64::from(run.len) << self.volume.geometry.block_size_log;
        let from = offset.max(run_start);
        let to = (offset + data.len() as u64).min(run_start + run_len);
        let part = &data[(from - offset) as usize..(to - offset) as usize];
        if run.is_exposed {
            // In a cluster, new blocks may be such as the file had before, too.
            if run.was_unwritten || self.volume.geometry.cluster_blocks_log > 0 {
                return self.write_in_sectors(run, from - run_start, part);
            }
            self.write_zeros(run.start, 0, from - run_start)?;
            self.write_zeros(run.start, to - run_start, run_len)?;
        }
        self.write_data(run.start, from - run_start, part)
    }

    /// Writes `data` from byte `from` of an exposed run on, and zeros around it, each sector at once.
    ///
    /// What is exposed may be what the file itself had there before: a crash may still show that, but
    /// not beside what is new in one sector.
    fn write_in_sectors(&self, run: &DataRun, from: u64, data: &[u8]) -> Result<()> {
        let run_len = u64::from(run.len) << self.volume.geometry.block_size_log;
        let end = from + data.len() as u64;
        let (first, within) = (from - from % SECTOR, (from % SECTOR) as usize);
        self.write_zeros(run.start, 0, first)?;
        self.write_zeros(run.start, end.next_multiple_of(SECTOR), run_len)?;
        let (mut at, mut rest) = (from, data);
        if within > 0 {
            let head;
            (head, rest) = data.split_at(data.len().min(SECTOR as usize - within));
            self.write_sector(run.start, first, within, head)?;
            at = first + SECTOR;
        }
        let (whole, tail) = rest.split_at(rest.len() - rest.len() % SECTOR as usize);
        if !whole.is_empty() {
            self.write_data(run.start, at, whole)?;
        }
        if !tail.is_empty() {
            self.write_sector(run.start, at + whole.len() as u64, 0, tail)?;
        }
        Ok(())
    }

    /// Writes the sector at byte `at` from a block on: `data` from byte `within` on, else zeros.
    fn write_sector(&self, block: Block, at: u64, within: usize, data: &[u8]) -> Result<()> {
        let mut bytes = [0; SECTOR as usize];
        bytes[within..within + data.len()].copy_from_slice(data);
        self.write_data(block, at, &bytes)
    }

    /// Zeroes what a run has of some bytes of the file; all of it if it is exposed.
    pub(super) fn zero_run(&self, run: &DataRun, bytes: &Range<u64>) -> Result<()> {
        let run_start = self.byte_of(run.block);
        let run_len = u64::from(run.len) << self.volume.geometry.block_size_log;
        if run.is_exposed {
            return self.write_zeros(run.start, 0, run_len);
        }
        let from = bytes.start.saturating_sub(run_start);
        let to = bytes.end.saturating_sub(run_start).min(run_len);
        self.write_zeros(run.start, from, to)
    }
}

impl Op<'_> {
    /// Zeroes what was written of some bytes of a file, when the operation commits.
    pub(super) fn zero_written(&mut self, file: &Handle, bytes: Range<u64>) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let log = self.fs.volume.geometry.block_size_log;
        let mut at = bytes.start >> log;
        while at << log < bytes.end {
            let Ok(block) = u32::try_from(at) else { return Ok(()) };
            let run = self.run_at(file, FileBlock(block))?;
            if let Place::Written(start) = run.place {
                let len = run.len.min((bytes.end - (at << log)).div_ceil(1 << log)) as u32;
                let run_start = self.fs.byte_of(block);
                let from = bytes.start.saturating_sub(run_start);
                let to = bytes.end.saturating_sub(run_start).min(u64::from(len) << log);
                self.zeroed_runs.push(ZeroedRun { start, bytes: from..to });
            }
            at += run.len;
        }
        Ok(())
    }
}
