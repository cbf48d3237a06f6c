//! Finding the end of the log.
//!
//! The log is a ring. Every block contains the cycle in which it was written. So the log ends where the cycle decreases
//! by one, or to zero while the log is in its first cycle. Several records are written at a time and may reach the disk
//! in any order. So blocks of the previous cycle may be left between newer ones just before the end, and the last
//! record may be incomplete. Everything after the first such block was never completely written, and is discarded.

use disk::{BlockDevice, ContentKind, DeviceRole};
use vfs::{Error, Result};

use super::area::Area;
use super::{bounds, owner};
use crate::format::log::{BLOCK_SIZE, Lsn, ParsedRecord, cycle_of};
use crate::format::superblock::Superblock;

/// Maximum number of blocks being written at one time: 8 buffers of 256 KiB (`XLOG_TOTAL_REC_SHIFT`).
pub(super) const IN_FLIGHT_BLOCKS: u32 = (8 * (256 << 10) / BLOCK_SIZE) as u32;
/// Maximum number of torn records at the end: one per buffer.
const TORN_RECORDS_MAX: u32 = 8;

/// Number of bisection steps whose blocks are prefetched together.
const PROBES_LOG: u32 = 3;

/// The end of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The first block after the last complete record.
    pub head: u32,
    /// The last complete record. `None` if the log was never written.
    pub last: Option<ParsedRecord>,
    /// True if there is nothing to replay: the last record is an unmount record, or there is none.
    pub is_clean: bool,
}

/// Returns whether the log of an image has nothing to replay. False if its end cannot be found.
///
/// # Errors
/// If the device fails; `Unsupported` if the log is on another device, which is missing or has the log of another file
/// system; `Corrupt` if that device is empty.
pub fn log_is_clean(device: &dyn BlockDevice, superblock: &Superblock) -> Result<bool> {
    Ok(log_end(device, superblock)?.is_some_and(|end| end.is_clean))
}

/// Finds the end of the log of an image; `None` if there is no valid log.
///
/// # Errors
/// As [`log_is_clean`].
pub fn log_end(device: &dyn BlockDevice, superblock: &Superblock) -> Result<Option<LogEnd>> {
    let Some(ring) = Ring::of(device, superblock)? else { return Ok(None) };
    let end = ring.end()?;
    if ring.is_on_log_device() {
        let last = end.and_then(|end| end.last).map(|last| last.lsn);
        let area = Area { start: ring.start, blocks: ring.blocks };
        owner::check(device, area, ring.uuid, last)?;
    }
    match end {
        Some(end) if !end.is_clean => bounds::without_torn(&ring, end),
        end => Ok(end),
    }
}

/// Returns the byte offset on the device at which the next record will be written, if the end of the log can be found.
pub(crate) fn head_byte(device: &dyn BlockDevice, superblock: &Superblock) -> Option<u64> {
    let end = log_end(device, superblock).ok().flatten()?;
    let area = Area::find(device, superblock).ok().flatten()?;
    Some(area.start + u64::from(end.head) * BLOCK_SIZE as u64)
}

/// Returns the byte range of the log on the device; `None` if the superblock's log fields are invalid.
///
/// # Errors
/// `Unsupported` if the log is on another device, which is missing or too short.
pub(crate) fn log_range(
    device: &dyn BlockDevice,
    superblock: &Superblock,
) -> Result<Option<std::ops::Range<u64>>> {
    Ok(Ring::of(device, superblock)?.map(|ring| ring.place()))
}

/// The blocks of a log.
pub(super) struct Ring<'a> {
    device: &'a dyn BlockDevice,
    start: u64,
    /// Number of blocks.
    pub(super) blocks: u32,
    /// The UUID in its records.
    pub(super) uuid: [u8; 16],
    /// True if all records with changes have a checksum. Old kernels wrote none with version 4.
    pub(super) has_checksums: bool,
}

impl<'a> Ring<'a> {
    /// Returns `None` if the superblock's log fields are invalid.
    pub(super) fn of(device: &'a dyn BlockDevice, superblock: &Superblock) -> Result<Option<Self>> {
        let area = Area::find(device, superblock)?;
        let (uuid, has_checksums) = (superblock.raw.uuid, superblock.features.crc());
        Ok(area.map(|Area { start, blocks }| Self { device, start, blocks, uuid, has_checksums }))
    }

    /// Returns its byte range on the device.
    pub(super) const fn place(&self) -> std::ops::Range<u64> {
        self.start..self.start + self.blocks as u64 * BLOCK_SIZE as u64
    }

    /// Returns whether it is on another device than the file system.
    const fn is_on_log_device(&self) -> bool {
        self.start >= DeviceRole::Log.start()
    }

    /// Reads whole blocks, wrapping around the end.
    pub(super) fn read_around(&self, block: u32, buf: &mut [u8]) -> Result<()> {
        let to_end = (self.blocks - block) as usize * BLOCK_SIZE;
        let (now, later) = buf.split_at_mut(buf.len().min(to_end));
        self.read(block, now)?;
        if later.is_empty() { Ok(()) } else { self.read(0, later) }
    }

    fn read(&self, block: u32, buf: &mut [u8]) -> Result<()> {
        let offset = self.start + u64::from(block) * BLOCK_SIZE as u64;
        self.device.read_at(offset, buf).map_err(Error::Device)
    }

    fn cycle(&self, block: u32) -> Result<u32> {
        let mut bytes = [0; 8];
        self.read(block, &mut bytes)?;
        Ok(cycle_of(&bytes))
    }

    fn end(&self) -> Result<Option<LogEnd>> {
        let (first, last) = (self.cycle(0)?, self.cycle(self.blocks - 1)?);
        if first == 0 {
            // The log was never written, or this is not a log.
            return Ok((last == 0).then_some(LogEnd { head: 0, last: None, is_clean: true }));
        }
        // The last blocks may be two cycles older: when a record wrapped around the end, and only its second part was
        // written.
        if last != 0 && first.wrapping_sub(last) > 2 {
            return Ok(None);
        }
        let head = self.first_not_of(first)?;
        let head = self.without_holes(head, first)?;
        let head = self.without_holes_before_the_end(head, first)?;
        self.last_record(head)
    }

    /// Prefetches all blocks that the next bisection steps of `range` may read, if the device has read-ahead.
    fn ask_for_probes(&self, range: std::ops::Range<u32>) {
        if !self.device.has_read_ahead() {
            return;
        }
        let len = u64::from(range.end - range.start);
        for probe in 1..1 << PROBES_LOG {
            let block = u64::from(range.start) + ((len * probe) >> PROBES_LOG);
            let start = self.start + block * BLOCK_SIZE as u64;
            self.device.read_ahead(start, BLOCK_SIZE as u64, ContentKind::Metadata);
        }
    }

    /// Returns the first block of another cycle than that of block 0. All blocks before it have that cycle, except for
    /// those being written at the crash. Blocks after the first decrease never have that cycle.
    fn first_not_of(&self, cycle: u32) -> Result<u32> {
        let (mut of_cycle, mut not) = (0, self.blocks);
        for step in 0.. {
            if not - of_cycle <= 1 {
                break;
            }
            if step % PROBES_LOG == 0 {
                self.ask_for_probes(of_cycle..not);
            }
            let middle = of_cycle + (not - of_cycle) / 2;
            if self.cycle(middle)? == cycle {
                of_cycle = middle;
            } else {
                not = middle;
            }
        }
        Ok(not)
    }

    /// Moves the head back to the first block of the previous cycle among those that may have been in flight.
    fn without_holes(&self, head: u32, cycle: u32) -> Result<u32> {
        let from = head.saturating_sub(IN_FLIGHT_BLOCKS);
        let bytes = self.window(from, head)?;
        // In a short ring, blocks of the next cycle may already be here.
        let is_stale = |block: &[u8]| cycle_of(block) == cycle.wrapping_sub(1);
        let stale = bytes.chunks_exact(BLOCK_SIZE).position(is_stale);
        Ok(stale.map_or(head, |at| from + at as u32))
    }

    /// Like [`Self::without_holes`], at the end of the ring, if the blocks that may have been in flight wrap around it.
    /// Blocks there have the cycle before.
    fn without_holes_before_the_end(&self, head: u32, cycle: u32) -> Result<u32> {
        let rest = IN_FLIGHT_BLOCKS.saturating_sub(head).min(self.blocks - head);
        let from = self.blocks - rest;
        let bytes = self.window(from, self.blocks)?;
        let mut blocks = bytes.chunks_exact(BLOCK_SIZE);
        let is_stale = |block: &[u8]| cycle_of(block) == cycle.wrapping_sub(2);
        Ok(blocks.position(is_stale).map_or(head, |at| from + at as u32))
    }

    fn window(&self, from: u32, to: u32) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (to - from) as usize * BLOCK_SIZE];
        self.read(from, &mut bytes)?;
        Ok(bytes)
    }

    /// Finds the last complete record before `head`, which may be the end of the ring. The record may wrap around.
    pub(super) fn last_record(&self, mut head: u32) -> Result<Option<LogEnd>> {
        for _ in 0..=TORN_RECORDS_MAX {
            let Some((start, record)) = self.record_before(head)? else { return Ok(None) };
            let end = (u64::from(start) + u64::from(record.blocks())) % u64::from(self.blocks);
            if end == u64::from(head % self.blocks) {
                let is_clean = self.is_unmount(start, &record)?;
                return Ok(Some(LogEnd { head: head % self.blocks, last: Some(record), is_clean }));
            }
            // Part of it is missing, so it was never completely written.
            head = start;
        }
        Ok(None)
    }

    /// Returns the last record that starts before `head`, and its first block. Searches as far back as the longest
    /// record can reach, wrapping around the end of the ring.
    pub(super) fn record_before(&self, head: u32) -> Result<Option<(u32, ParsedRecord)>> {
        let reach = IN_FLIGHT_BLOCKS.min(self.blocks);
        let before = head.min(reach);
        if let Some(found) = self.last_header(head - before, head)? {
            return Ok(Some(found));
        }
        let rest = reach - before;
        self.last_header(self.blocks - rest, self.blocks)
    }

    fn last_header(&self, from: u32, to: u32) -> Result<Option<(u32, ParsedRecord)>> {
        let bytes = self.window(from, to)?;
        let mut blocks = bytes.chunks_exact(BLOCK_SIZE).enumerate();
        let header = |(at, block)| {
            let start = from + at as u32;
            let record = ParsedRecord::parse(block, self.blocks)?;
            // A header contains its own position; one with another position is old contents.
            (record.lsn.block == start && record.lsn.cycle == cycle_of(block))
                .then_some((start, record))
        };
        Ok(blocks.rfind(|block| header(*block).is_some()).and_then(header))
    }

    fn is_unmount(&self, start: u32, record: &ParsedRecord) -> Result<bool> {
        if record.operations != 1 || record.body_blocks == 0 {
            return Ok(false);
        }
        let body = (u64::from(start) + u64::from(record.header_blocks)) % u64::from(self.blocks);
        let mut block = [0; BLOCK_SIZE];
        self.read(body as u32, &mut block)?;
        Ok(record.is_unmount(&block))
    }
}

impl LogEnd {
    /// Returns the start of the part of the log that must be replayed.
    pub fn tail(&self) -> Option<Lsn> {
        self.last.filter(|_| !self.is_clean).map(|record| record.tail)
    }
}
