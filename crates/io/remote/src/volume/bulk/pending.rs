//! Writes that are not in the database yet: buffered blocks by region, and flights, which are being written. Also the
//! lock of block ranges.
//!
//! Invariants: a flight holds the lock of its blocks until its batch is in the database. A buffered block was inserted
//! under its lock and enters a flight only while that lock is free. So each block has at most one pending
//! value, and batches with a block enter the database in the order of its writes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::volume::VolumeError;

/// Size of a region in bytes.
pub(crate) const REGION_BYTES: u64 = 4 << 20;
/// Number of adjacent, aligned regions that share an object if all of them have bulk data.
pub(crate) const GROUP_REGIONS: u64 = 4;
/// Maximum size of pending writes. Beyond it, writers wait.
const PENDING_BYTES_MAX: u64 = 128 << 20;
/// Maximum number of puts of bulk objects in flight. Together they contain at most the pending writes.
const PUTS_MAX: usize = 8;

/// Blocks with their new contents; empty contents mean zeros.
pub(crate) type DirtyBlocks = BTreeMap<u64, Bytes>;

/// Pending writes of a volume.
pub(crate) struct Pending {
    state: Mutex<PendingState>,
    /// Signals each change of the state that a task may wait for.
    changed: Notify,
    block_bytes: u64,
    /// Minimum amount of data in a region that becomes an object.
    bulk_bytes: u64,
}

#[derive(Default)]
struct PendingState {
    buffers: BTreeMap<u64, RegionBuffer>,
    flights: BTreeMap<u64, Arc<DirtyBlocks>>,
    /// Locked ranges of blocks by number of the lock. The lock of a flight has the flight's number.
    held: BTreeMap<u64, Range<u64>>,
    /// The next number of a buffer, lock or flight.
    next: u64,
    /// Size of all blocks in buffers and flights.
    bytes: u64,
    puts: usize,
    /// Regions that were written, with the time of the last write, until they are compacted.
    written: BTreeMap<u64, Instant>,
    /// The first failure, which prevents all further writes.
    failed: Option<String>,
}

/// Unsent blocks of a region.
struct RegionBuffer {
    blocks: DirtyBlocks,
    /// Size of the blocks that are not zeros.
    data_bytes: u64,
    number: u64,
    since: Instant,
}

/// Blocks that are being written to the database.
pub(crate) struct Flight {
    pub(crate) number: u64,
    pub(crate) blocks: Arc<DirtyBlocks>,
    /// Set if the data becomes an object.
    pub(crate) is_bulk: bool,
}

/// Selection of buffers to send.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Due {
    /// Regions of a group, if all of its blocks are buffered.
    FullGroup(u64),
    /// Buffers that existed when this number was taken.
    Before(u64),
    /// Buffers that are older. Those that would have to wait are not taken.
    Older(Duration),
}

/// Exclusive access to a range of blocks.
pub(crate) struct HeldBlocks {
    pending: Arc<Pending>,
    number: u64,
}

impl Drop for HeldBlocks {
    fn drop(&mut self) {
        self.pending.state.lock().held.remove(&self.number);
        self.pending.changed.notify_waiters();
    }
}

impl Pending {
    pub(crate) fn new(block_bytes: u64, bulk_bytes: u64) -> Self {
        let (state, changed) = Default::default();
        Self { state, changed, block_bytes, bulk_bytes }
    }

    /// Returns the number of blocks in a region.
    pub(crate) const fn region_blocks(&self) -> u64 {
        REGION_BYTES / self.block_bytes
    }

    /// Records the first failure.
    pub(crate) fn fail(&self, why: &VolumeError) {
        self.state.lock().failed.get_or_insert_with(|| why.to_string());
        self.changed.notify_waiters();
    }

    /// Fails if an earlier write or flush failed.
    pub(crate) fn check(&self) -> Result<(), VolumeError> {
        self.state.lock().check()
    }

    /// Waits for changes of the state until `done` returns something.
    async fn wait_for<T>(
        &self,
        mut done: impl FnMut(&mut PendingState) -> Option<T>,
    ) -> Result<T, VolumeError> {
        loop {
            // Before the test, so that no change is missed.
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let mut state = self.state.lock();
                state.check()?;
                if let Some(value) = done(&mut state) {
                    return Ok(value);
                }
            }
            changed.await;
        }
    }

    /// Locks a range of blocks. Waits for flights and other holders that overlap it. A task must not hold two ranges,
    /// or send buffers while it holds one.
    pub(crate) async fn hold(
        self: &Arc<Self>,
        blocks: Range<u64>,
    ) -> Result<HeldBlocks, VolumeError> {
        let number = self.wait_for(|state| state.hold(&blocks)).await?;
        Ok(HeldBlocks { pending: Arc::clone(self), number })
    }

    /// Locks the blocks of a region for its compaction, if nothing of it is pending or locked.
    pub(crate) fn hold_region(self: &Arc<Self>, region: u64) -> Option<HeldBlocks> {
        let mut state = self.state.lock();
        if state.failed.is_some() || state.buffers.contains_key(&region) {
            return None;
        }
        let size = self.region_blocks();
        let number = state.hold(&(region * size..(region + 1) * size))?;
        Some(HeldBlocks { pending: Arc::clone(self), number })
    }

    /// Notes a write to regions, which makes them candidates for compaction.
    pub(crate) fn note_written(&self, blocks: Range<u64>) {
        let size = self.region_blocks();
        let mut state = self.state.lock();
        for region in blocks.start / size..blocks.end.div_ceil(size) {
            state.written.insert(region, Instant::now());
        }
    }

    /// Returns a region whose last write is longer ago, and forgets that it was written.
    pub(crate) fn quiet_region(&self, age: Duration) -> Option<u64> {
        let mut state = self.state.lock();
        let (&region, _) = state.written.iter().find(|(_, written)| written.elapsed() > age)?;
        state.written.remove(&region);
        Some(region)
    }

    /// Returns whether unsent blocks of a region are buffered.
    pub(crate) fn has_buffer(&self, region: u64) -> bool {
        self.state.lock().buffers.contains_key(&region)
    }

    /// Adds blocks to the buffer of their region. The caller holds them.
    pub(crate) fn buffer(&self, region: u64, blocks: DirtyBlocks) {
        let mut state = self.state.lock();
        let number = state.number();
        let buffer = state.buffers.entry(region).or_insert_with(|| RegionBuffer {
            blocks: DirtyBlocks::new(),
            data_bytes: 0,
            number,
            since: Instant::now(),
        });
        let mut added = 0;
        for (block, contents) in blocks {
            buffer.data_bytes += contents.len() as u64;
            match buffer.blocks.insert(block, contents) {
                Some(replaced) => buffer.data_bytes -= replaced.len() as u64,
                None => added += 1,
            }
        }
        state.bytes += added * self.block_bytes;
    }

    /// Removes buffered blocks, because the caller removes them from the volume. The caller holds them.
    pub(crate) fn forget(&self, blocks: Range<u64>) {
        let size = self.region_blocks();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let mut removed = 0;
        state.buffers.retain(|&region, buffer| {
            if region < blocks.start / size || region * size >= blocks.end {
                return true;
            }
            buffer.blocks.retain(|block, contents| {
                let stays = !blocks.contains(block);
                if !stays {
                    removed += 1;
                    buffer.data_bytes -= contents.len() as u64;
                }
                stays
            });
            !buffer.blocks.is_empty()
        });
        state.bytes -= removed * self.block_bytes;
        drop(guard);
        self.changed.notify_waiters();
    }

    /// Returns the pending blocks of a range, in order.
    pub(crate) fn overlay(&self, blocks: Range<u64>) -> Vec<(u64, Bytes)> {
        let size = self.region_blocks();
        let state = self.state.lock();
        let regions = blocks.start / size..blocks.end.div_ceil(size);
        let buffered = state.buffers.range(regions).map(|(_, buffer)| &buffer.blocks);
        let all = buffered.chain(state.flights.values().map(|blocks| &**blocks));
        let within = all.flat_map(|dirty| dirty.range(blocks.clone()));
        let mut found: Vec<_> = within.map(|(block, value)| (*block, value.clone())).collect();
        drop(state);
        found.sort_unstable_by_key(|(block, _)| *block);
        found
    }

    /// Returns whether pending writes use all memory that they may.
    pub(crate) fn is_full(&self) -> bool {
        self.state.lock().bytes > PENDING_BYTES_MAX
    }

    /// Waits until pending writes may use more memory.
    pub(crate) async fn wait_for_room(&self) -> Result<(), VolumeError> {
        self.wait_for(|state| (state.bytes <= PENDING_BYTES_MAX).then_some(())).await
    }

    /// Returns the next number; all existing buffers and flights have smaller ones.
    pub(crate) fn number(&self) -> u64 {
        self.state.lock().number()
    }

    /// Moves the next due buffers into a flight. Waits for holders of their blocks and for other puts, except for
    /// [`Due::Older`].
    pub(crate) async fn take(&self, due: Due) -> Result<Option<Flight>, VolumeError> {
        self.wait_for(|state| {
            let Some((regions, is_bulk)) = self.next(state, due) else { return Some(None) };
            let size = self.region_blocks();
            let blocks = regions.start * size..regions.end * size;
            let has_slot = !is_bulk || state.puts < PUTS_MAX;
            let number = if has_slot { state.hold(&blocks) } else { None };
            match number {
                Some(number) => Some(Some(state.launch(number, regions, is_bulk))),
                None if matches!(due, Due::Older(_)) => Some(None),
                None => None,
            }
        })
        .await
    }

    /// Returns the next regions to send, and whether they become an object.
    fn next(&self, state: &PendingState, due: Due) -> Option<(Range<u64>, bool)> {
        let is_due = |buffer: &RegionBuffer| match due {
            Due::FullGroup(_) => true,
            Due::Before(number) => buffer.number < number,
            Due::Older(age) => buffer.since.elapsed() > age,
        };
        if let Due::FullGroup(group) = due {
            let regions = group * GROUP_REGIONS..(group + 1) * GROUP_REGIONS;
            let is_full = |region| {
                let buffer = state.buffers.get(&region)?;
                Some(buffer.data_bytes == REGION_BYTES && self.is_bulk(buffer))
            };
            return regions
                .clone()
                .all(|region| is_full(region) == Some(true))
                .then_some((regions, true));
        }
        let (&first, buffer) = state.buffers.iter().find(|(_, buffer)| is_due(buffer))?;
        if !self.is_bulk(buffer) {
            return Some((first..first + 1, false));
        }
        let group_end = (first / GROUP_REGIONS + 1) * GROUP_REGIONS;
        let joins = |region: &u64| state.buffers.get(region).is_some_and(|it| self.is_bulk(it));
        let end =
            (first + 1..group_end).take_while(joins).last().map_or(first + 1, |last| last + 1);
        Some((first..end, true))
    }

    fn is_bulk(&self, buffer: &RegionBuffer) -> bool {
        buffer.data_bytes >= self.bulk_bytes
    }

    /// Ends a flight. A failed one remains, so that its blocks can be read and not be overtaken.
    pub(crate) fn land(&self, flight: &Flight, result: Result<(), VolumeError>) {
        if let Err(error) = &result {
            self.fail(error);
        }
        let mut state = self.state.lock();
        state.puts -= usize::from(flight.is_bulk);
        if result.is_ok() {
            state.flights.remove(&flight.number);
            state.held.remove(&flight.number);
            state.bytes -= flight.blocks.len() as u64 * self.block_bytes;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Waits until all flights with a smaller number have ended.
    pub(crate) async fn wait_for_flights(&self, before: u64) -> Result<(), VolumeError> {
        self.wait_for(|state| state.flights.range(..before).next().is_none().then_some(())).await
    }
}

impl PendingState {
    fn check(&self) -> Result<(), VolumeError> {
        self.failed.as_ref().map_or(Ok(()), |why| Err(VolumeError::Failed(why.clone())))
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Locks a range, unless a part of it is locked.
    fn hold(&mut self, blocks: &Range<u64>) -> Option<u64> {
        let overlaps = |held: &Range<u64>| held.start < blocks.end && blocks.start < held.end;
        if self.held.values().any(overlaps) {
            return None;
        }
        let number = self.number();
        self.held.insert(number, blocks.clone());
        Some(number)
    }

    fn launch(&mut self, number: u64, regions: Range<u64>, is_bulk: bool) -> Flight {
        let mut blocks = DirtyBlocks::new();
        for region in regions {
            if let Some(mut buffer) = self.buffers.remove(&region) {
                blocks.append(&mut buffer.blocks);
            }
        }
        let blocks = Arc::new(blocks);
        self.puts += usize::from(is_bulk);
        self.flights.insert(number, Arc::clone(&blocks));
        Flight { number, blocks, is_bulk }
    }
}
