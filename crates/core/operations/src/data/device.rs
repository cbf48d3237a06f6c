//! File data on the device. Places are byte addresses of the device, offsets are bytes of a file.

use std::ops::Range;

use engine::Engine;
use smallvec::SmallVec;
use vfs::{Error, Result};

use super::{LogicalBlock, MapFiles, Piece, ReadFiles, Was};

/// Source of zeros: at least a block of the maximum size.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Size of a sector, which devices write atomically, in bytes.
const SECTOR: u64 = 512;

/// Minimum length for which the device is asked to zero a range itself, in bytes.
const LONG_ZEROS_FROM: u64 = 1 << 20;

/// A run of whole blocks of a file that is contiguous on the device.
#[derive(Clone, Copy, Debug)]
pub struct DataRun {
    /// Start in the file, in bytes.
    pub offset: u64,
    /// Start on the device, in bytes.
    pub place: u64,
    /// Length in bytes.
    pub len: u64,
    /// True if the device contains old data that must not become readable.
    pub is_exposed: bool,
    /// True if it was allocated but not written. The file may have had contents there before, which reappear after a
    /// crash.
    pub was_unwritten: bool,
}

/// The runs that an operation works on, in ascending order.
pub type DataRuns = SmallVec<[DataRun; 8]>;

impl DataRun {
    /// Converts a piece of a file that starts at block `at`.
    pub(super) fn of<F: ReadFiles>(fs: &F, at: LogicalBlock, piece: &Piece<F::Block>) -> Self {
        let log = fs.block_size_log();
        Self {
            offset: at.0 << log,
            place: fs.byte_of(piece.start),
            len: piece.len << log,
            is_exposed: piece.is_exposed(),
            was_unwritten: piece.was == Was::Unwritten,
        }
    }

    fn is_continued_by(&self, next: &Self) -> bool {
        self.place + self.len == next.place
            && self.is_exposed == next.is_exposed
            && self.was_unwritten == next.was_unwritten
            && self.offset + self.len == next.offset
    }
}

/// Appends a run, merged with the last one if they are contiguous.
pub(super) fn push(runs: &mut DataRuns, run: DataRun) {
    match runs.last_mut() {
        Some(last) if last.is_continued_by(&run) => last.len += run.len,
        _ => runs.push(run),
    }
}

/// Byte ranges of the device to be zeroed when an operation commits. Files may show these bytes, and zeroing cannot be
/// undone, so they are written last.
#[derive(Debug, Default)]
pub struct ZeroedRuns(SmallVec<[Range<u64>; 1]>);

impl ZeroedRuns {
    /// Adds a byte range of the device.
    pub fn push(&mut self, bytes: Range<u64>) {
        self.0.push(bytes);
    }

    /// Writes the zeros and clears the list.
    ///
    /// # Errors
    /// `Device`.
    pub fn write(&mut self, engine: &Engine) -> Result<()> {
        std::mem::take(&mut self.0).into_iter().try_for_each(|bytes| write_zeros(engine, bytes))
    }
}

/// Writes file data directly to the device.
///
/// # Errors
/// `Device`.
pub fn write_data(engine: &Engine, place: u64, data: &[u8]) -> Result<()> {
    engine.device().write_at(place, data).map_err(Error::Device)
}

/// Zeroes a byte range of the device. Does nothing if the range ends before it starts.
///
/// # Errors
/// `Device`.
pub fn write_zeros(engine: &Engine, bytes: Range<u64>) -> Result<()> {
    let Range { start: mut at, end } = bytes;
    if end.saturating_sub(at) >= LONG_ZEROS_FROM {
        return engine.device().zero_range(at, end - at).map_err(Error::Device);
    }
    while at < end {
        let len = (end - at).min(ZEROS.len() as u64);
        write_data(engine, at, &ZEROS[..len as usize])?;
        at += len;
    }
    Ok(())
}

/// Writes the part of `data` within a run, where `data` starts at `offset` of the file. Writes zeros around it if the
/// run is exposed.
///
/// # Errors
/// `Device`.
pub fn write_run<F: MapFiles>(fs: &F, run: &DataRun, offset: u64, data: &[u8]) -> Result<()> {
    let engine = fs.engine();
    let from = offset.max(run.offset);
    let to = (offset + data.len() as u64).min(run.offset + run.len);
    let part = &data[(from - offset) as usize..(to - offset) as usize];
    let (from, to) = (from - run.offset, to - run.offset);
    if run.is_exposed {
        if run.was_unwritten || fs.may_get_back_own() {
            return write_in_sectors(engine, run, from, part);
        }
        write_zeros(engine, run.place..run.place + from)?;
        write_zeros(engine, run.place + to..run.place + run.len)?;
    }
    write_data(engine, run.place + from, part)
}

/// Writes `data` from byte `from` of an exposed run on, with zeros around it, one write per sector.
///
/// The old data may be the file's own. A crash may show it again, but never mixed with new data within a sector.
fn write_in_sectors(engine: &Engine, run: &DataRun, from: u64, data: &[u8]) -> Result<()> {
    let end = from + data.len() as u64;
    let (first, within) = (from - from % SECTOR, (from % SECTOR) as usize);
    write_zeros(engine, run.place..run.place + first)?;
    write_zeros(engine, run.place + end.next_multiple_of(SECTOR)..run.place + run.len)?;
    let (mut at, mut rest) = (run.place + from, data);
    if within > 0 {
        let head;
        (head, rest) = data.split_at(data.len().min(SECTOR as usize - within));
        write_sector(engine, run.place + first, within, head)?;
        at = run.place + first + SECTOR;
    }
    let (whole, tail) = rest.split_at(rest.len() - rest.len() % SECTOR as usize);
    if !whole.is_empty() {
        write_data(engine, at, whole)?;
    }
    if !tail.is_empty() {
        write_sector(engine, at + whole.len() as u64, 0, tail)?;
    }
    Ok(())
}

/// Writes the sector at `place`: `data` from byte `within` on, otherwise zeros.
fn write_sector(engine: &Engine, place: u64, within: usize, data: &[u8]) -> Result<()> {
    let mut bytes = [0; SECTOR as usize];
    bytes[within..within + data.len()].copy_from_slice(data);
    write_data(engine, place, &bytes)
}

/// Zeroes the part of `bytes` of the file within a run, or the whole run if it is exposed.
pub(super) fn zero_run(engine: &Engine, run: &DataRun, bytes: &Range<u64>) -> Result<()> {
    if run.is_exposed {
        return write_zeros(engine, run.place..run.place + run.len);
    }
    let from = bytes.start.saturating_sub(run.offset);
    let to = bytes.end.saturating_sub(run.offset).min(run.len);
    write_zeros(engine, run.place + from..run.place + to)
}

/// Copies the bytes of a piece outside of `bytes` from the old blocks of the file. The piece starts at block `at`; only
/// its first and last block can have bytes outside.
pub(super) fn copy_edges<F: ReadFiles>(
    fs: &F,
    at: LogicalBlock,
    piece: &Piece<F::Block>,
    bytes: &Range<u64>,
) -> Result<()> {
    let Some(old) = piece.copied_from else { return Ok(()) };
    let log = fs.block_size_log();
    let (from, to) = (fs.byte_of(old), fs.byte_of(piece.start));
    let head = at.0 << log < bytes.start;
    let tail = at.plus(piece.len).0 << log > bytes.end;
    if head {
        copy_block(fs, from, to)?;
    }
    if tail && !(head && piece.len == 1) {
        let last = (piece.len - 1) << log;
        copy_block(fs, from + last, to + last)?;
    }
    Ok(())
}

/// Copies a block on the device.
fn copy_block<F: ReadFiles>(fs: &F, from: u64, to: u64) -> Result<()> {
    let mut bytes = vec![0; 1 << fs.block_size_log()];
    fs.engine().device().read_at(from, &mut bytes).map_err(Error::Device)?;
    write_data(fs.engine(), to, &bytes)
}
