//! Sends pending writes: bulk data as objects with references in the database, other data as values.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::PutPayload;
use slatedb::{Db, WriteBatch};
use tokio::sync::OnceCell;

use crate::place::runtime;
use crate::volume::VolumeError;
use crate::volume::blocks::{BATCH_BLOCKS, EPOCH, key, recorded_epoch};
use crate::volume::bulk::pending::Flight;
use crate::volume::bulk::{DirtyBlocks, Due, Pending, Reference, checksum};
use crate::volume::reader::BlockReader;

/// Age of buffered writes that are sent without a flush, and the interval of checks.
const AGE_MAX: Duration = Duration::from_secs(5);
const CHECKED_EVERY: Duration = Duration::from_secs(1);

/// Pending writes of a volume with the means to send them.
pub(crate) struct BulkWriter {
    /// The database and the objects.
    pub(crate) reader: Arc<BlockReader<Db>>,
    pub(crate) pending: Arc<Pending>,
    /// The epoch of this writer, once it is recorded.
    epoch: OnceCell<u64>,
}

impl BulkWriter {
    pub(crate) fn new(reader: Arc<BlockReader<Db>>, bulk_bytes: u64) -> Self {
        let pending = Arc::new(Pending::new(reader.geometry.block_bytes, bulk_bytes));
        Self { reader, pending, epoch: OnceCell::new() }
    }

    pub(crate) fn db(&self) -> &Db {
        &self.reader.reads
    }

    /// Sends all due buffers, and returns when they are on the way.
    pub(crate) async fn send(self: &Arc<Self>, due: Due) -> Result<(), VolumeError> {
        while let Some(flight) = self.pending.take(due).await? {
            let this = Arc::clone(self);
            runtime::handle().spawn(async move {
                let result = this.write(&flight).await;
                this.pending.land(&flight, result);
            });
        }
        Ok(())
    }

    /// Returns when all writes before the call are in the database. They need not be durable.
    pub(crate) async fn settle(self: &Arc<Self>) -> Result<(), VolumeError> {
        self.send(Due::Before(self.pending.number())).await?;
        self.pending.wait_for_flights(self.pending.number()).await
    }

    /// Starts to send old buffers and to compact regions from time to time, until the writer is dropped or fails.
    pub(crate) fn start_upkeep(self: &Arc<Self>, compact_after: Duration) {
        let writer = Arc::downgrade(self);
        runtime::handle().spawn(async move {
            loop {
                tokio::time::sleep(CHECKED_EVERY.min(compact_after)).await;
                let Some(writer) = writer.upgrade() else { return };
                if writer.send(Due::Older(AGE_MAX)).await.is_err() {
                    return;
                }
            }
        });
        let writer = Arc::downgrade(self);
        runtime::handle().spawn(async move {
            loop {
                tokio::time::sleep(CHECKED_EVERY.min(compact_after)).await;
                let Some(writer) = writer.upgrade() else { return };
                while let Some(region) = writer.pending.quiet_region(compact_after) {
                    if let Err(error) = writer.compact(region).await {
                        // The region stays as it is. A failure of the device is reported by its next write.
                        tracing::warn!("cannot compact region {region} of a volume: {error}");
                    }
                }
            }
        });
    }

    async fn write(&self, flight: &Flight) -> Result<(), VolumeError> {
        if flight.is_bulk {
            return self.write_bulk(&flight.blocks).await;
        }
        self.write_values(&flight.blocks).await
    }

    /// Writes blocks as data to the database.
    pub(crate) async fn write_values(&self, blocks: &DirtyBlocks) -> Result<(), VolumeError> {
        let _write = self.reader.references.write(&span(blocks));
        let mut batch = WriteBatch::new();
        for (count, (block, data)) in (1_usize..).zip(blocks) {
            if data.is_empty() {
                batch.delete(key(*block));
            } else {
                batch.put_bytes(Bytes::copy_from_slice(&key(*block)), data.clone());
            }
            if count == blocks.len() || count.is_multiple_of(BATCH_BLOCKS) {
                self.db().write(std::mem::take(&mut batch)).await?;
            }
        }
        Ok(())
    }

    /// Puts blocks as one object. Its references enter the database in one batch after the put has succeeded.
    pub(crate) async fn write_bulk(&self, blocks: &DirtyBlocks) -> Result<(), VolumeError> {
        let data: PutPayload = blocks.values().filter(|data| !data.is_empty()).cloned().collect();
        let epoch = self.epoch().await?;
        let object = self.reader.objects.put(epoch, data).await?;
        let mut batch = WriteBatch::new();
        let mut index = 0;
        for (block, data) in blocks {
            if data.is_empty() {
                batch.delete(key(*block));
                continue;
            }
            let reference = Reference { object, index, checksum: checksum(data) };
            batch.put_bytes(Bytes::copy_from_slice(&key(*block)), reference.to_value());
            index += 1;
        }
        let write = self.reader.references.write(&span(blocks));
        self.db().write(batch).await?;
        drop(write);
        self.reader.objects.settled(object);
        Ok(())
    }

    /// Fails if another machine has opened the volume: then the log refuses the record.
    pub(crate) async fn prove_ownership(&self) -> Result<(), VolumeError> {
        let epoch = self.epoch().await?;
        self.db().put(EPOCH, epoch.to_be_bytes()).await?;
        Ok(self.db().flush().await?)
    }

    /// Returns the epoch of this writer, which is recorded on first use.
    pub(crate) async fn epoch(&self) -> Result<u64, VolumeError> {
        self.epoch.get_or_try_init(|| self.record_epoch()).await.copied()
    }

    /// Chooses the epoch of this writer and makes its record durable. Only one writer can record an epoch: the log
    /// refuses all others.
    async fn record_epoch(&self) -> Result<u64, VolumeError> {
        let before = recorded_epoch(self.db()).await?.unwrap_or(0);
        let epoch = before.checked_add(1).ok_or_else(|| {
            VolumeError::Damaged("its recorded epoch is the largest possible number".into())
        })?;
        self.db().put(EPOCH, epoch.to_be_bytes()).await?;
        self.db().flush().await?;
        Ok(epoch)
    }
}

/// Returns the range from the first to the last of these blocks.
fn span(blocks: &DirtyBlocks) -> Range<u64> {
    match (blocks.first_key_value(), blocks.last_key_value()) {
        (Some((first, _)), Some((last, _))) => *first..last + 1,
        _ => 0..0,
    }
}
