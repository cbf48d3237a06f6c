//! Implements the engine's log: each checkpoint is one transaction in it.
//!
//! Invariants:
//! - The log contains a whole image of a block before it contains parts of it, and keeps it as long as the parts
//!   (`engine::Image::pieces`). So a replay never combines blocks on disk with parts of another age, and repairs a
//!   torn write-back.
//! - The last record of a checkpoint, which commits it, is written only after all its others, and everything that the
//!   checkpoint refers to, are durable. A log on another device needs both devices flushed for this: barriers and
//!   flushes of [`disk::JoinedDevice`] reach all its devices. The number of records in flight never exceeds the number whose checksums
//!   kernels check.
//! - Blocks between the tail and the head according to the records on the device are not overwritten: a new tail takes
//!   effect only when a record with it is durable. So the log always keeps room for one more record. The first record
//!   of a checkpoint stores the furthest tail that was possible before.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use disk::BlockDevice;
use engine::locks::Mutex;
use engine::{Checkpoint, Fit, Log, Size, spread};
use vfs::{Error, Result};

use super::Position;
use super::area::Area;
use super::end::IN_FLIGHT_BLOCKS;
use super::items::{ItemHistory, Items, PartOfItems};
use crate::format::geometry::Geometry;
use crate::format::log::build::{
    Operations, RECORD_BLOCKS_MAX, RECORD_SIZE_MAX, RecordBuilder, RecordPlace,
};
use crate::format::log::operation::{OP_COMMIT, OP_CONTINUE, OP_END, OP_START, OP_WAS_CONTINUED};
use crate::format::log::transaction::checkpoint_header;
use crate::format::log::{BLOCK_SIZE, CLIENT_LOG, Lsn, OP_UNMOUNT, RawOpHeader, UNMOUNT_MAGIC};
use crate::format::superblock::Superblock;

/// Maximum part of the log for one checkpoint, in sixteenths. The larger it is, the more often a block changes before
/// it is written once.
const CHECKPOINT_SHARE: u32 = 6;
/// If more than this many sixteenths are in use, blocks must be written back. The last checkpoint alone should take
/// less: it stays in the log until the next one is complete. There must also be room for transactions that commit while
/// the next one is being closed, and for a record that moves the tail.
const SHORT_SHARE: u32 = 7;
const _: () = assert!(CHECKPOINT_SHARE < SHORT_SHARE && CHECKPOINT_SHARE + SHORT_SHARE < 14);
/// A record takes at most one part in this many of the log.
const RECORD_SHARE: usize = 32;
/// Maximum number of records written and not yet durable: one less than the buffers of a kernel (`XLOG_MAX_ICLOGS`).
/// Kernels search for the first hole in the [`IN_FLIGHT_BLOCKS`] before the last block of the newest cycle. The header
/// of the record before the hole must be in that window, too.
const IN_FLIGHT_MAX: u32 = 7;
const _: () = assert!((IN_FLIGHT_MAX + 1) * RECORD_BLOCKS_MAX <= IN_FLIGHT_BLOCKS);
/// Minimum number of blocks that a thread converts to items.
const PART_BLOCKS: usize = 256;
/// Maximum number of blocks that are converted before their records are written, to limit memory.
const BLOCKS_AT_ONCE: usize = 4096;

/// A checkpoint in the log.
#[derive(Clone, Copy, Debug)]
struct Live {
    /// Its sequence number in the engine; 0 for the contents at open.
    sequence: u64,
    /// Position of its first record.
    start: Lsn,
}

struct XfsLogState {
    /// Position of the next record.
    head: Lsn,
    /// The block of the last record's header.
    previous: Option<u32>,
    /// The number of the next transaction.
    tid: u32,
    /// The checkpoints in the log, oldest first.
    live: VecDeque<Live>,
    /// The oldest position that the durable records declare needed.
    durable_tail: Lsn,
    /// The tail in the last record written.
    written_tail: Lsn,
    /// Number of records since the last flush.
    in_flight: u32,
    /// Total bytes of all records.
    bytes_written: u64,
    record: RecordBuilder,
    /// Records with a position that are not written yet. They count as in flight.
    placed: Vec<(RecordBuilder, RecordPlace)>,
    /// Maximum number of threads that write them.
    threads: usize,
    /// Builders that wait for their next record.
    spare: Vec<RecordBuilder>,
    items: ItemHistory,
    /// True if the log is still clean because nothing was written.
    is_untouched: bool,
    /// True if recovered intents are not finished yet: their part of the log must stay until then.
    has_intents: bool,
    /// Done items of intents, which go first into the next checkpoint.
    done: Vec<Vec<u8>>,
}

/// The constant properties of the log.
struct LogGeometry {
    device: Arc<dyn BlockDevice>,
    area: Area,
    geometry: Geometry,
    uuid: [u8; 16],
}

impl LogGeometry {
    /// Returns the maximum number of log blocks of a checkpoint with `done` bytes of done items.
    fn blocks_of(&self, record: &RecordBuilder, size: Size, done: usize) -> u64 {
        // The start, the header and the commit.
        let frame = 3 * size_of::<RawOpHeader>() + checkpoint_header(0).len();
        let images = size.images * Items::bytes_max(&self.geometry);
        let freed = size.freed * Items::freed_bytes_max(&self.geometry);
        record.blocks_for(frame + done + images + freed, Items::region_max(&self.geometry))
    }

    /// Returns the maximum number of images of a checkpoint that takes at most `share` log blocks. Freed blocks take no
    /// more than images.
    fn images_in(&self, record: &RecordBuilder, share: u32) -> usize {
        let fits = |images| self.blocks_of(record, Size { images, freed: 0 }, 0) <= share.into();
        let (mut most, mut too_many) = (0, share as usize + 1);
        while too_many - most > 1 {
            let middle = most + (too_many - most) / 2;
            if fits(middle) { most = middle } else { too_many = middle }
        }
        most
    }
}

/// The log of a file system opened for writing.
#[derive(Clone)]
pub(crate) struct XfsLog {
    shape: Arc<LogGeometry>,
    blocks_max: usize,
    state: Arc<Mutex<XfsLogState>>,
}

impl XfsLog {
    /// Opens the log at `position`, with everything before it written back. Writes nothing yet.
    pub(crate) fn open(
        device: Arc<dyn BlockDevice>,
        sb: &Superblock,
        position: Position,
    ) -> Result<Self> {
        let area = Area::of(&*device, sb)?;
        let geometry = Geometry::new(sb);
        let limit = area.blocks as usize * BLOCK_SIZE / RECORD_SHARE;
        // Kernels take `h_size` from the first record after the tail, so all records from there on must have the same.
        let size = position.record_size.unwrap_or(RECORD_SIZE_MAX);
        let largest = geometry.dir_block_size();
        let record = RecordBuilder::new(size, sb.raw.logsunit.get(), limit, largest);
        let shape = LogGeometry { device, area, geometry, uuid: sb.raw.uuid };
        let blocks_max = shape.images_in(&record, area.blocks / 16 * CHECKPOINT_SHARE);
        if blocks_max == 0 {
            let what = format!("a log of {} KiB", area.blocks / 2);
            return Err(Error::unsupported(
                what,
                "it contains no changes; open the image read-only",
            ));
        }
        let live = position.tail.map(|start| Live { sequence: 0, start });
        let tail = position.tail.or(position.replayed_from).unwrap_or(position.head);
        let mut state = XfsLogState {
            head: position.head,
            previous: position.previous,
            tid: 1,
            live: live.into_iter().collect(),
            durable_tail: tail,
            written_tail: tail,
            in_flight: 0,
            bytes_written: 0,
            record,
            placed: Vec::new(),
            threads: 1,
            spare: Vec::new(),
            items: ItemHistory::default(),
            is_untouched: position.is_clean,
            has_intents: false,
            done: Vec::new(),
        };
        if position.tail.is_none() && !state.has_room(&area, state.record.blocks_max()) {
            // The replayed part has been written back, and the log is so full that the first record must overwrite it.
            state.durable_tail = state.head;
            state.written_tail = state.head;
        }
        Ok(Self { shape: Arc::new(shape), blocks_max, state: Arc::new(Mutex::new(state)) })
    }

    /// Adds an item of one region to the next checkpoint. Must be called in the operation that finishes the intent,
    /// before it commits, while no other operation runs.
    pub(crate) fn add_done(&self, item: Vec<u8>) {
        self.state.lock().done.push(item);
    }

    /// Returns the number of bytes written to the log since it was opened.
    pub(crate) fn bytes_written(&self) -> u64 {
        self.state.lock().bytes_written
    }

    /// Sets whether recovered intents are not finished yet. While there are some, the tail does not move, so each crash
    /// leaves the unfinished ones in the log.
    pub(crate) fn keep_intents(&self, are_left: bool) {
        self.state.lock().has_intents = are_left;
    }

    /// Writes the unmount record, which marks the log clean. Everything in the log must have been written back durably.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn close(&self) -> Result<()> {
        let mut state = self.state.lock();
        if state.is_untouched {
            return Ok(());
        }
        let mut contents = [0; 8];
        contents[..2].copy_from_slice(&UNMOUNT_MAGIC.to_le_bytes());
        let tid = state.tid;
        state.record.push_of(CLIENT_LOG, tid, OP_UNMOUNT, &contents);
        let tail = state.head;
        let written = state.place_record(&self.shape, tail);
        written.and_then(|()| state.flush(&self.shape)).map_err(Error::Device)
    }
}

impl XfsLogState {
    fn used(&self, area: &Area) -> u32 {
        self.live.front().map_or(0, |live| area.distance(live.start, self.head))
    }

    fn flush(&mut self, shape: &LogGeometry) -> std::io::Result<()> {
        self.write_placed(shape)?;
        shape.device.flush()?;
        self.note_order();
        Ok(())
    }

    /// Orders previous writes before later ones.
    fn barrier(&mut self, shape: &LogGeometry) -> std::io::Result<()> {
        self.write_placed(shape)?;
        shape.device.barrier()?;
        self.note_order();
        Ok(())
    }

    /// Records that later writes are ordered after all records so far.
    fn note_order(&mut self) {
        self.in_flight = 0;
        self.durable_tail = self.written_tail;
    }

    /// Gives the current record its position, and starts the next one. It is written before the next barrier or flush.
    fn place_record(&mut self, shape: &LogGeometry, tail: Lsn) -> std::io::Result<()> {
        let blocks = self.record.blocks();
        if self.in_flight >= IN_FLIGHT_MAX || !self.has_room(&shape.area, blocks) {
            self.barrier(shape)?;
        }
        if !self.has_room(&shape.area, blocks) {
            return Err(std::io::Error::other("a checkpoint larger than the log"));
        }
        let place = RecordPlace {
            lsn: self.head,
            tail,
            previous: self.previous,
            uuid: shape.uuid,
            log_blocks: shape.area.blocks,
        };
        let next = self.spare.pop().unwrap_or_else(|| self.record.another());
        self.placed.push((std::mem::replace(&mut self.record, next), place));
        self.previous = Some(self.head.block);
        self.head = shape.area.after(self.head, blocks);
        self.written_tail = tail;
        self.in_flight += 1;
        self.bytes_written += u64::from(blocks) * BLOCK_SIZE as u64;
        self.is_untouched = false;
        Ok(())
    }

    /// Writes all records that have a position.
    fn write_placed(&mut self, shape: &LogGeometry) -> std::io::Result<()> {
        let written =
            spread(self.threads, std::mem::take(&mut self.placed), |(mut record, place)| {
                let bytes = record.finish(&place);
                shape.area.write(&*shape.device, place.lsn.block, bytes)?;
                record.clear();
                Ok(record)
            });
        written.into_iter().try_for_each(|record| record.map(|record| self.spare.push(record)))
    }

    /// Returns whether a record fits before the durable tail. One block stays free: a full log would look like an empty
    /// one.
    fn has_room(&self, area: &Area, blocks: u32) -> bool {
        area.distance(self.durable_tail, self.head) + blocks < area.blocks
    }

    /// Writes a checkpoint durably.
    fn write_checkpoint(
        &mut self,
        shape: &LogGeometry,
        checkpoint: &Checkpoint<'_>,
    ) -> engine::Result<()> {
        let start = self.head;
        let tail = self.live.front().map_or(start, |live| live.start);
        let tid = self.tid;
        self.tid = self.tid.checked_add(1).unwrap_or(1);
        self.record.clear();
        self.items.begin(checkpoint.sequence());
        self.threads = checkpoint.threads_max();
        let mut frame = Operations::of(tid);
        frame.push_flagged(OP_START, &[]);
        frame.push(&checkpoint_header(tid));
        std::mem::take(&mut self.done).iter().for_each(|done| frame.push(done));
        self.add(shape, tail, &frame)?;
        let parts = parts_of(&shape.geometry, checkpoint)?;
        for parts in parts.chunks(BLOCKS_AT_ONCE / PART_BLOCKS) {
            for part in convert(&shape.geometry, tid, checkpoint, parts) {
                let part = part?;
                self.items.note(&part);
                self.add(shape, tail, &part.operations)?;
            }
        }
        let mut cancels = Operations::of(tid);
        self.items.cancel(&shape.geometry, checkpoint.freed(), &mut cancels);
        self.add(shape, tail, &cancels)?;
        if !self.record.fits(0) {
            self.place_record(shape, tail)?;
        }
        self.record.push(tid, OP_COMMIT, &[]);
        // Everything that the checkpoint refers to, and all its other records, must be durable before the commit
        // record.
        self.barrier(shape)?;
        self.place_record(shape, tail)?;
        self.flush(shape)?;
        self.live.push_back(Live { sequence: checkpoint.sequence(), start });
        Ok(())
    }

    /// Adds operations of a checkpoint.
    fn add(
        &mut self,
        shape: &LogGeometry,
        tail: Lsn,
        operations: &Operations,
    ) -> std::io::Result<()> {
        let mut rest = operations.all();
        loop {
            self.record.append(&mut rest);
            if rest.is_empty() {
                return Ok(());
            }
            match rest.take_long(&self.record) {
                Some(long) => self.add_long(shape, tail, (operations.tid(), long))?,
                None => self.place_record(shape, tail)?,
            }
        }
    }

    /// Adds a region that spans several records.
    fn add_long(
        &mut self,
        shape: &LogGeometry,
        tail: Lsn,
        (tid, bytes): (u32, &[u8]),
    ) -> std::io::Result<()> {
        let (mut rest, mut begun) = (bytes, 0);
        if !self.record.fits(BLOCK_SIZE) {
            self.place_record(shape, tail)?;
        }
        loop {
            let (now, later) = rest.split_at(rest.len().min(self.record.room()));
            let goes_on = if later.is_empty() { OP_END } else { OP_CONTINUE };
            self.record.push(tid, begun | goes_on, now);
            if later.is_empty() {
                return Ok(());
            }
            self.place_record(shape, tail)?;
            (rest, begun) = (later, OP_WAS_CONTINUED);
        }
    }
}

/// Splits the blocks of a checkpoint into parts that can be converted separately.
fn parts_of(geometry: &Geometry, checkpoint: &Checkpoint<'_>) -> engine::Result<Vec<Range<usize>>> {
    let all = checkpoint.len();
    let each = all.div_ceil(checkpoint.threads(PART_BLOCKS)).clamp(1, PART_BLOCKS);
    let mut parts = Vec::with_capacity(all / each + 1);
    let mut start = 0;
    let mut next = each;
    while next < all {
        let mut may_start = false;
        checkpoint.for_each_of(next..next + 1, |image| {
            may_start = Items::may_start_at(geometry, &image);
            Ok(())
        })?;
        if may_start {
            parts.push(start..next);
            start = next;
            next += each;
        } else {
            next += 1;
        }
    }
    parts.push(start..all);
    Ok(parts)
}

/// Converts parts of a checkpoint to items, on several threads.
fn convert(
    geometry: &Geometry,
    tid: u32,
    checkpoint: &Checkpoint<'_>,
    parts: &[Range<usize>],
) -> Vec<engine::Result<PartOfItems>> {
    spread(checkpoint.threads_max(), parts.to_vec(), |part| {
        let mut items = Items::new(geometry, tid);
        checkpoint.for_each_of(part, |image| {
            items.add(&image);
            Ok(())
        })?;
        Ok(items.finish())
    })
}

impl Log for XfsLog {
    fn blocks_max(&self) -> usize {
        self.blocks_max
    }

    fn write(&self, checkpoint: &Checkpoint<'_>) -> engine::Result<()> {
        self.state.lock().write_checkpoint(&self.shape, checkpoint)
    }

    fn fit(&self, size: Size) -> Fit {
        let state = self.state.lock();
        let area = &self.shape.area;
        let done = state.done.iter().map(|item| size_of::<RawOpHeader>() + item.len()).sum();
        let blocks = self.shape.blocks_of(&state.record, size, done);
        let taken = u64::from(state.used(area)) + blocks;
        // Room for a record that moves the tail, and the block that is never used.
        if taken + u64::from(state.record.blocks_max()) >= area.blocks.into() {
            Fit::Not
        } else if taken > u64::from(area.blocks / 16 * SHORT_SHARE) {
            Fit::Alone
        } else {
            Fit::WithAnother
        }
    }

    fn advance_tail(&self, sequence: u64) -> engine::Result<()> {
        let mut state = self.state.lock();
        // The next record stores the new tail.
        let stays = if state.has_intents { 0 } else { sequence };
        state.live.retain(|live| live.sequence >= stays);
        state.items.advance_tail(sequence);
        Ok(())
    }
}
