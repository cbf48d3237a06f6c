//! Finding the end of the log.
//!
//! The log is a ring. Every block bears the cycle it was written in, so the end is where cycles drop
//! by one, or to zero while the log is in its first cycle. Records are written several at a time and
//! may reach the disk in any order: shortly before the end, blocks of the cycle before may lie between
//! newer ones, and the last record may be there in part. What lies behind the first such block never
//! was complete, and does not count.

use blockdev::BlockDevice;
use vfs::{Error, Result};

use super::area::Area;
use super::bounds;
use crate::format::log::{BLOCK_SIZE, Lsn, Record, cycle_of};
use crate::format::superblock::Superblock;

/// Blocks that may be on their way to the disk at once: 8 buffers of 256 KiB
/// (`XLOG_TOTAL_REC_SHIFT`).
pub(super) const IN_FLIGHT_BLOCKS: u32 = (8 * (256 << 10) / BLOCK_SIZE) as u32;
/// Torn records at the end that are passed over: not more than buffers.
const TORN_RECORDS_MAX: u32 = 8;

/// Steps of halving whose blocks are asked for together.
const PROBES_LOG: u32 = 3;

/// The end of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The first block behind the last complete record.
    pub head: u32,
    /// The last complete record. `None` if the log was never written to.
    pub last: Option<Record>,
    /// Whether there is nothing to replay: the last record says that the file system was unmounted, or
    /// there is no record.
    pub is_clean: bool,
}

/// Whether the log of an image has nothing to replay. False if its end cannot be made out.
///
/// # Errors
/// If the device fails; `Unsupported` if the log is on another device.
pub fn log_is_clean(device: &dyn BlockDevice, superblock: &Superblock) -> Result<bool> {
    Ok(log_end(device, superblock)?.is_some_and(|end| end.is_clean))
}

/// Finds the end of the log of an image; `None` if what is there is no log.
///
/// # Errors
/// As [`log_is_clean`].
pub fn log_end(device: &dyn BlockDevice, superblock: &Superblock) -> Result<Option<LogEnd>> {
    let Some(ring) = Ring::of(device, superblock)? else { return Ok(None) };
    match ring.end()? {
        Some(end) if !end.is_clean => bounds::without_torn(&ring, end),
        end => Ok(end),
    }
}

/// Where the next record will be written, in bytes of the device, if the end of the log can be made out.
pub(crate) fn head_byte(device: &dyn BlockDevice, superblock: &Superblock) -> Option<u64> {
    let end = log_end(device, superblock).ok().flatten()?;
    let area = Area::find(superblock)?;
    Some(area.start + u64::from(end.head) * BLOCK_SIZE as u64)
}

/// The blocks of a log.
pub(super) struct Ring<'a> {
    device: &'a dyn BlockDevice,
    start: u64,
    /// Number of blocks.
    pub(super) blocks: u32,
    /// The uuid that its records bear.
    pub(super) uuid: [u8; 16],
}

impl<'a> Ring<'a> {
    /// `None` if the superblock's numbers of the log cannot be.
    pub(super) fn of(device: &'a dyn BlockDevice, superblock: &Superblock) -> Result<Option<Self>> {
        let raw = &superblock.raw;
        if raw.logstart.get() == 0 {
            let advice = "copy the files with a kernel that has that device, or read the image as it \
                          lies: --norecovery";
            return Err(Error::unsupported("a log on another device", advice));
        }
        let area = Area::find(superblock);
        Ok(area.map(|Area { start, blocks }| Self { device, start, blocks, uuid: raw.uuid }))
    }

    /// Its bytes on the device.
    pub(super) const fn place(&self) -> std::ops::Range<u64> {
        self.start..self.start + self.blocks as u64 * BLOCK_SIZE as u64
    }

    /// Reads whole blocks, around the end where need be.
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
            // Nothing was ever written, or this is no log.
            return Ok((last == 0).then_some(LogEnd { head: 0, last: None, is_clean: true }));
        }
        // Two cycles older are the last blocks if of a record around the end only the rest came there.
        if last != 0 && first.wrapping_sub(last) > 2 {
            return Ok(None);
        }
        let head = self.first_not_of(first)?;
        let head = self.without_holes(head, first)?;
        let head = self.without_holes_before_the_end(head, first)?;
        self.last_record(head)
    }

    /// Where the device is slow to read, asks for all blocks that the next steps of halving `range` may look at.
    fn ask_for_probes(&self, range: std::ops::Range<u32>) {
        if !self.device.has_read_ahead() {
            return;
        }
        let len = u64::from(range.end - range.start);
        for probe in 1..1 << PROBES_LOG {
            let block = u64::from(range.start) + ((len * probe) >> PROBES_LOG);
            self.device.read_ahead(self.start + block * BLOCK_SIZE as u64, BLOCK_SIZE as u64);
        }
    }

    /// The first block that is not of the cycle that the first one is of: all before it are, but for
    /// what was in flight. Blocks later than the first drop are never of that cycle.
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

    /// Moves the head back to the first block of another cycle than `cycle` among those that may have
    /// been in flight.
    fn without_holes(&self, head: u32, cycle: u32) -> Result<u32> {
        let from = head.saturating_sub(IN_FLIGHT_BLOCKS);
        let bytes = self.window(from, head)?;
        // Blocks of the next cycle may be here already where the ring is short.
        let is_stale = |block: &[u8]| cycle_of(block) == cycle.wrapping_sub(1);
        let stale = bytes.chunks_exact(BLOCK_SIZE).position(is_stale);
        Ok(stale.map_or(head, |at| from + at as u32))
    }

    /// The same at the end of the ring, if what may have been in flight reaches back around it. There the
    /// blocks bear the cycle before.
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

    /// Looks for the last record that is complete before `head`, which may be the end of the ring. It
    /// may start at the end of the ring and go on at its start.
    pub(super) fn last_record(&self, mut head: u32) -> Result<Option<LogEnd>> {
        for _ in 0..=TORN_RECORDS_MAX {
            let Some((start, record)) = self.record_before(head)? else { return Ok(None) };
            let end = (u64::from(start) + u64::from(record.blocks())) % u64::from(self.blocks);
            if end == u64::from(head % self.blocks) {
                let is_clean = self.is_unmount(start, &record)?;
                return Ok(Some(LogEnd { head: head % self.blocks, last: Some(record), is_clean }));
            }
            // Part of it is missing, so that it never was written.
            head = start;
        }
        Ok(None)
    }

    /// The record that starts last before `head`, and its first block: looked for as far back as the
    /// longest record can reach, around the end of the ring where need be.
    pub(super) fn record_before(&self, head: u32) -> Result<Option<(u32, Record)>> {
        let reach = IN_FLIGHT_BLOCKS.min(self.blocks);
        let before = head.min(reach);
        if let Some(found) = self.last_header(head - before, head)? {
            return Ok(Some(found));
        }
        let rest = reach - before;
        self.last_header(self.blocks - rest, self.blocks)
    }

    fn last_header(&self, from: u32, to: u32) -> Result<Option<(u32, Record)>> {
        let bytes = self.window(from, to)?;
        let mut blocks = bytes.chunks_exact(BLOCK_SIZE).enumerate();
        let header = |(at, block)| {
            let start = from + at as u32;
            let record = Record::parse(block, self.blocks)?;
            // A header says where it is; one that does not is part of old contents.
            (record.lsn.block == start && record.lsn.cycle == cycle_of(block))
                .then_some((start, record))
        };
        Ok(blocks.rfind(|block| header(*block).is_some()).and_then(header))
    }

    fn is_unmount(&self, start: u32, record: &Record) -> Result<bool> {
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
    /// Where the part of the log starts that must be replayed.
    pub fn tail(&self) -> Option<Lsn> {
        self.last.filter(|_| !self.is_clean).map(|record| record.tail)
    }
}
