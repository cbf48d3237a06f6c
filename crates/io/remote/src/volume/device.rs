//! A volume opened for writing.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::place::runtime::{self, block_on};
use bytes::Bytes;
use disk::{BlockDevice, ContentKind, is_zero};
use slatedb::Db;
use slatedb::config::{CheckpointOptions, CheckpointScope};

use crate::volume::blocks::{BATCH_BLOCKS, Geometry, Scan, Touched};
use crate::volume::bulk::{BulkObjects, BulkWriter, DirtyBlocks, Due, GROUP_REGIONS};
use crate::volume::marker::Marker;
use crate::volume::reader::BlockReader;
use crate::volume::{
    GARBAGE_AGE, GarbageCount, Location, Options, VolumeError, database, garbage, names,
};

/// Maximum number of blocks that are removed without a scan for existing ones.
const REMOVED_UNSEEN_MAX: u64 = 64;
/// Fraction of the minimum of bulk data in a region. Smaller writes to a region without a buffer are not buffered.
const BUFFERED_PARTS: u64 = 16;
/// Interval in which a writer removes unused objects. It reads all references.
const COLLECTED_EVERY: Duration = Duration::from_secs(12 * 3600);
/// Maximum time for closing a volume on drop. After that it is left as after a crash.
const CLOSE_TIME: Duration = Duration::from_secs(60);

/// A volume with exclusive write access. The next process that opens it fences this one: all later writes and flushes
/// fail.
///
/// Writes are buffered in memory until [`flush`](BlockDevice::flush), up to about 256 MiB; beyond that, writers wait.
/// After a failed write or flush, all later ones fail too, and the bucket's state is that after a crash. Dropping a
/// volume closes it, so that the next open is faster.
pub struct Volume {
    writer: Arc<BulkWriter>,
    geometry: Geometry,
    at: Location,
    marker: Marker,
    /// Minimum size of a write that starts a buffer.
    buffered_bytes: u64,
}

impl Volume {
    /// Opens a volume for writing, and fences its previous writer.
    ///
    /// # Errors
    /// If it does not exist, it is damaged, or the bucket is inaccessible.
    pub fn open(at: &Location, options: &Options) -> Result<Self, VolumeError> {
        block_on(async {
            let marker = Marker::read(at).await?;
            let db = database::open(at, &marker, options).await?;
            match Geometry::check(&db, &marker).await {
                Ok(_) => Ok(Self::new(at, db, &marker, options)),
                Err(error) => {
                    // No data were written, so errors can be ignored.
                    let _ = db.close_with_options(database::unflushed()).await;
                    Err(error)
                }
            }
        })
    }

    pub(crate) fn new(at: &Location, db: Db, marker: &Marker, options: &Options) -> Self {
        let geometry = Geometry::new(marker);
        let objects = BulkObjects::new(at, marker, options);
        let reader = Arc::new(BlockReader::new(db, geometry, objects));
        let writer = Arc::new(BulkWriter::new(reader, options.bulk_bytes));
        let mut buffered_bytes = u64::MAX;
        if geometry.has_bulk {
            buffered_bytes = options.bulk_bytes / BUFFERED_PARTS;
            writer.start_upkeep(options.compact_after);
            start_collecting(at, marker, &writer);
        }
        let (at, marker) = (at.clone(), marker.clone());
        Self { writer, geometry, at, marker, buffered_bytes }
    }

    /// Creates a snapshot that contains all writes completed before the call.
    ///
    /// # Errors
    /// If the name is taken or invalid, or the bucket is inaccessible.
    pub fn snapshot(&self, name: &str) -> Result<(), VolumeError> {
        let options = CheckpointOptions { name: Some(name.into()), ..Default::default() };
        block_on(async {
            self.writer.settle().await?;
            names::check_free(&self.at, name).await?;
            self.writer.db().create_checkpoint(CheckpointScope::All, &options).await?;
            Ok(())
        })
    }

    /// Makes all writes durable and closes the volume.
    ///
    /// # Errors
    /// If a write cannot be made durable.
    pub fn close(self) -> Result<(), VolumeError> {
        block_on(async {
            self.flushed().await?;
            Ok(self.writer.db().close().await?)
        })
    }

    /// Records a new epoch, so that the objects of all earlier writers may be collected.
    pub(crate) fn start_epoch(&self) -> Result<(), VolumeError> {
        block_on(self.writer.epoch()).map(drop)
    }

    /// Removes bulk objects without references, of this writer and of earlier ones. An object must have been found without
    /// references by a run that is at least `age` ago.
    ///
    /// # Errors
    /// If a snapshot is removed at the same time, the volume was taken over, or the bucket is inaccessible.
    pub fn collect(&self, age: Duration) -> Result<GarbageCount, VolumeError> {
        if !self.geometry.has_bulk {
            return Ok(GarbageCount::default());
        }
        block_on(garbage::collect_own(&self.at, &self.marker, &self.writer, age))
    }

    /// Stores each region with data in several objects as one new object. Returns the number of these regions.
    ///
    /// # Errors
    /// If an object is damaged or the bucket is inaccessible.
    pub fn compact(&self) -> Result<u64, VolumeError> {
        block_on(async {
            self.writer.settle().await?;
            self.writer.compact_all().await
        })
    }

    async fn flushed(&self) -> Result<(), VolumeError> {
        self.writer.settle().await?;
        self.recorded(self.writer.db().flush().await.map_err(VolumeError::from))
    }

    /// Records the first failure.
    fn recorded<T>(&self, result: Result<T, VolumeError>) -> Result<T, VolumeError> {
        result.inspect_err(|error| self.writer.pending.fail(error))
    }

    fn check_usable(&self) -> io::Result<()> {
        self.writer.pending.check().map_err(|error| self.named(error))
    }

    fn named(&self, error: VolumeError) -> io::Error {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("{}: {error}", self.at.address))
    }

    /// Reads whole blocks, first from pending writes. A write enters the database before it ends to be pending, so its
    /// blocks are always in one of them.
    async fn read_blocks(&self, blocks: Range<u64>, buf: &mut [u8]) -> Result<(), VolumeError> {
        let size = self.geometry.block_bytes as usize;
        let bytes = |from: u64, to: u64| {
            (from - blocks.start) as usize * size..(to - blocks.start) as usize * size
        };
        let mut rest = blocks.start;
        for (block, data) in self.writer.pending.overlay(blocks.clone()) {
            if rest < block {
                self.writer.reader.read_blocks(rest..block, &mut buf[bytes(rest, block)]).await?;
            }
            let out = &mut buf[bytes(block, block + 1)];
            if data.is_empty() {
                out.fill(0);
            } else {
                out.copy_from_slice(&data);
            }
            rest = block + 1;
        }
        if rest < blocks.end {
            self.writer
                .reader
                .read_blocks(rest..blocks.end, &mut buf[bytes(rest, blocks.end)])
                .await?;
        }
        Ok(())
    }

    async fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), VolumeError> {
        let Touched { blocks, skip } = self.geometry.touched(offset, buf.len() as u64)?;
        let whole = (blocks.end - blocks.start) * self.geometry.block_bytes;
        if whole == buf.len() as u64 {
            return self.read_blocks(blocks, buf).await;
        }
        let mut around = vec![0; whole as usize];
        self.read_blocks(blocks, &mut around).await?;
        buf.copy_from_slice(&around[skip..][..buf.len()]);
        Ok(())
    }

    /// Writes the blocks of each group of regions in turn, so that memory stays bounded.
    async fn write(&self, offset: u64, data: &[u8]) -> Result<(), VolumeError> {
        self.geometry.touched(offset, data.len() as u64)?;
        let group_bytes = self.group_blocks() * self.geometry.block_bytes;
        let is_large = data.len() as u64 >= self.buffered_bytes;
        let (mut offset, mut rest) = (offset, data);
        while !rest.is_empty() {
            let len = (group_bytes - offset % group_bytes).min(rest.len() as u64);
            let (piece, after) = rest.split_at(len as usize);
            self.write_in_group(offset, piece, is_large).await?;
            (offset, rest) = (offset + len, after);
        }
        Ok(())
    }

    fn group_blocks(&self) -> u64 {
        self.writer.pending.region_blocks() * GROUP_REGIONS
    }

    async fn write_in_group(
        &self,
        offset: u64,
        data: &[u8],
        is_large: bool,
    ) -> Result<(), VolumeError> {
        let pending = &self.writer.pending;
        if pending.is_full() {
            self.writer.send(Due::Before(pending.number())).await?;
            pending.wait_for_room().await?;
        }
        let Touched { blocks, skip } = self.geometry.touched(offset, data.len() as u64)?;
        let held = pending.hold(blocks.clone()).await?;
        let mut contents = self.contents(blocks.clone(), skip, data).await?;
        while let Some((&first, _)) = contents.first_key_value() {
            let region = first / pending.region_blocks();
            let later = contents.split_off(&((region + 1) * pending.region_blocks()));
            if self.geometry.has_bulk && (is_large || pending.has_buffer(region)) {
                pending.buffer(region, contents);
            } else {
                self.recorded(self.writer.write_values(&contents).await)?;
            }
            contents = later;
        }
        if self.geometry.has_bulk {
            pending.note_written(blocks.clone());
        }
        drop(held);
        self.writer.send(Due::FullGroup(blocks.start / self.group_blocks())).await
    }

    /// Returns the new contents of the blocks that a write touches. Reads blocks that it changes in part.
    async fn contents(
        &self,
        blocks: Range<u64>,
        skip: usize,
        data: &[u8],
    ) -> Result<DirtyBlocks, VolumeError> {
        let size = self.geometry.block_bytes as usize;
        let mut rest = data;
        let mut contents = DirtyBlocks::new();
        for block in blocks.clone() {
            let skip = if block == blocks.start { skip } else { 0 };
            let (piece, after) = rest.split_at(rest.len().min(size - skip));
            rest = after;
            let mut changed;
            let whole = if piece.len() == size {
                piece
            } else {
                changed = vec![0; size];
                self.read_blocks(block..block + 1, &mut changed).await?;
                changed[skip..][..piece.len()].copy_from_slice(piece);
                &changed
            };
            let value = if is_zero(whole) { Bytes::new() } else { Bytes::copy_from_slice(whole) };
            contents.insert(block, value);
        }
        Ok(contents)
    }

    async fn zero(&self, offset: u64, len: u64) -> Result<(), VolumeError> {
        let size = self.geometry.block_bytes;
        let end = offset + len;
        let (start, stop) = (offset.next_multiple_of(size), end / size * size);
        if start >= stop {
            return self.write(offset, &vec![0; len as usize]).await;
        }
        self.write(offset, &vec![0; (start - offset) as usize]).await?;
        self.remove(start / size..stop / size).await?;
        self.write(stop, &vec![0; (end - stop) as usize]).await
    }

    async fn remove(&self, blocks: Range<u64>) -> Result<(), VolumeError> {
        let held = self.writer.pending.hold(blocks.clone()).await?;
        self.remove_held(blocks.clone()).await?;
        // Buffered blocks can be read until those in the database are removed.
        self.writer.pending.forget(blocks);
        drop(held);
        Ok(())
    }

    /// Removes blocks. Large ranges are scanned first, because each tombstone of a missing key would stay for long.
    async fn remove_held(&self, blocks: Range<u64>) -> Result<(), VolumeError> {
        let mut removed = DirtyBlocks::new();
        if blocks.end - blocks.start <= REMOVED_UNSEEN_MAX {
            removed.extend(blocks.map(|block| (block, Bytes::new())));
            return self.recorded(self.writer.write_values(&removed).await);
        }
        let mut scan = Scan::new(self.writer.db(), blocks, self.geometry).await?;
        loop {
            let next = scan.next().await?;
            let is_end = next.is_none();
            removed.extend(next.map(|(block, _)| (block, Bytes::new())));
            if is_end || removed.len() == BATCH_BLOCKS {
                self.recorded(self.writer.write_values(&removed).await)?;
                removed.clear();
            }
            if is_end {
                return Ok(());
            }
        }
    }
}

impl BlockDevice for Volume {
    fn len(&self) -> u64 {
        self.geometry.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.writer.reader.note_read(offset, buf.len() as u64);
        block_on(self.read(offset, buf)).map_err(|error| self.named(error))
    }

    /// Objects are read in parts, each with a request. Tables are read ahead by scans.
    fn has_read_ahead(&self) -> bool {
        self.geometry.has_bulk
    }

    fn read_ahead(&self, offset: u64, len: u64, _content: ContentKind) {
        self.writer.reader.read_ahead(offset, len);
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check_usable()?;
        block_on(self.write(offset, data)).map_err(|error| self.named(error))
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.geometry.touched(offset, len)?;
        self.check_usable()?;
        block_on(self.zero(offset, len)).map_err(|error| self.named(error))
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.zero_range(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        block_on(self.flushed()).map_err(|error| self.named(error))
    }

    /// Each flush is a request to the bucket.
    fn has_long_flushes(&self) -> bool {
        true
    }

    /// The database's log keeps the order of writes once they are in the database. A crash loses only the latest ones.
    fn barrier(&self) -> io::Result<()> {
        block_on(self.writer.settle()).map_err(|error| self.named(error))
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Errors can be ignored: the writes were not reported as durable.
        let sent = block_on(self.writer.settle());
        let options = if sent.is_err() { database::unflushed() } else { Default::default() };
        // Flushed writes are in the log in any case; closing only moves them into tables.
        let db = self.writer.db();
        let closed = async {
            tokio::time::timeout(CLOSE_TIME, db.close_with_options(options)).await.map(drop)
        };
        let _ = block_on(closed);
    }
}

/// Removes unused objects from time to time, until the writer is dropped.
fn start_collecting(at: &Location, marker: &Marker, writer: &Arc<BulkWriter>) {
    let (at, marker, writer) = (at.clone(), marker.clone(), Arc::downgrade(writer));
    runtime::handle().spawn(async move {
        loop {
            tokio::time::sleep(COLLECTED_EVERY).await;
            let Some(writer) = writer.upgrade() else { return };
            let collected = garbage::collect_own(&at, &marker, &writer, GARBAGE_AGE).await;
            if let Err(error) = collected {
                // The objects remain until the next run.
                tracing::warn!("{}: cannot remove unused objects: {error}", at.address);
            }
        }
    });
}
