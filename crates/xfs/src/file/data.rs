//! File data on the device.

use std::ops::Range;

use smallvec::SmallVec;
use vfs::{Error, Result};

use crate::Xfs;
use crate::bmap::{self, Piece, Place, Want, Was};
use crate::format::address::{Block, FileBlock, FsBlock};
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::op::{Op, ZeroedRun};

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
    pub(super) block: FileBlock,
    pub(super) start: Block,
    pub(super) len: u64,
    /// Whether the device holds what must not be seen.
    pub(super) is_exposed: bool,
    /// Whether it was allocated but not written: the file may have had contents there before, which
    /// a crash brings back.
    pub(super) was_unwritten: bool,
}

/// The runs that an operation works on, in ascending order.
pub(super) type DataRuns = SmallVec<[DataRun; 8]>;

impl Xfs {
    /// Adds a piece behind the runs before it.
    pub(super) fn push_run(&self, runs: &mut DataRuns, block: FileBlock, piece: &Piece) {
        let start = self.volume.geometry.device_block(piece.start);
        let is_exposed = piece.is_exposed();
        let was_unwritten = piece.was == Was::Unwritten;
        if let Some(last) = runs.last_mut()
            && last.start.0 + last.len == start.0
            && last.is_exposed == is_exposed
            && last.was_unwritten == was_unwritten
            && last.block.plus(last.len) == block
        {
            last.len += piece.len;
            return;
        }
        runs.push(DataRun { block, start, len: piece.len, is_exposed, was_unwritten });
    }

    /// The first byte of a block of a file.
    pub(super) fn byte_of(&self, block: FileBlock) -> u64 {
        block.0 << self.volume.geometry.block_log
    }

    /// Writes file data straight to the device, from byte `within` of a block on.
    fn write_data(&self, block: Block, within: u64, data: &[u8]) -> Result<()> {
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
        let run_len = run.len << self.volume.geometry.block_log;
        let from = offset.max(run_start);
        let to = (offset + data.len() as u64).min(run_start + run_len);
        let part = &data[(from - offset) as usize..(to - offset) as usize];
        if run.is_exposed {
            if run.was_unwritten {
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
        let run_len = run.len << self.volume.geometry.block_log;
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
        let run_len = run.len << self.volume.geometry.block_log;
        if run.is_exposed {
            return self.write_zeros(run.start, 0, run_len);
        }
        let from = bytes.start.saturating_sub(run_start);
        let to = bytes.end.saturating_sub(run_start).min(run_len);
        self.write_zeros(run.start, from, to)
    }
}

impl Xfs {
    /// Copies what a piece of a file, from block `at` on, has outside of `bytes` from the blocks that it
    /// had before. Between its first and its last block there is nothing outside.
    pub(super) fn copy_edges(
        &self,
        at: FileBlock,
        piece: &Piece,
        bytes: &Range<u64>,
    ) -> Result<()> {
        let Some(old) = piece.copied_from else { return Ok(()) };
        let head = self.byte_of(at) < bytes.start;
        let tail = self.byte_of(at.plus(piece.len)) > bytes.end;
        if head {
            self.copy_block(old, piece.start)?;
        }
        if tail && !(head && piece.len == 1) {
            let last = piece.len - 1;
            self.copy_block(old.plus(last), piece.start.plus(last))?;
        }
        Ok(())
    }

    fn copy_block(&self, from: FsBlock, to: FsBlock) -> Result<()> {
        let geometry = &self.volume.geometry;
        let mut bytes = vec![0; geometry.block_size()];
        self.read_data(geometry.byte_of(geometry.device_block(from)), &mut bytes)?;
        self.write_data(geometry.device_block(to), 0, &bytes)
    }
}

impl Op<'_> {
    /// Zeroes what was written of some bytes of a file, when the operation commits.
    pub(super) fn zero_written(&mut self, file: &mut Handle, bytes: Range<u64>) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let geometry = self.fs.volume.geometry;
        let log = geometry.block_log;
        let end = FileBlock(bytes.end.div_ceil(1 << log));
        let mut at = FileBlock(bytes.start >> log);
        while at < end {
            let run = bmap::run_at(self, file, Fork::Data, at)?;
            let mut len = run.len;
            if let Place::Written(mut start) = run.place {
                len = len.min(end.0 - at.0);
                if bmap::may_share(file) {
                    let piece = self.provide(file, at, at.plus(len), Want::Own)?;
                    self.fs.copy_edges(at, &piece, &bytes)?;
                    (start, len) = (piece.start, piece.len);
                }
                let run_start = self.fs.byte_of(at);
                let from = bytes.start.saturating_sub(run_start);
                let to = (bytes.end - run_start).min(len << log);
                let start = geometry.device_block(start);
                self.zeroed_runs.push(ZeroedRun { start, bytes: from..to });
            }
            at = at.plus(len);
        }
        Ok(())
    }
}
