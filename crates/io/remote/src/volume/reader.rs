//! Reads blocks: their values in a state of the database, and the objects that it refers to.

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::try_join_all;
use slatedb::DbReadOps;
use slatedb::config::ReadOptions;

use crate::place::runtime;
use crate::place::sequential::SequentialReads;
use crate::volume::VolumeError;
use crate::volume::blocks::{Geometry, Scan, Touched, key};
use crate::volume::bulk::{BlockValue, BulkObjects, REGION_BYTES};
use crate::volume::references::{KnownRegion, RegionReferences};

/// Maximum number of blocks that are read by individual concurrent lookups. Larger ranges are scanned.
const SINGLE_MAX: u64 = 4;
/// Maximum size of one prefetch. A step of the sequential read-ahead is a quarter of the window and one read.
const AHEAD_MAX: u64 = 12 << 20;
/// Maximum number of bytes ahead of a sequential reader, in several prefetches.
const READ_AHEAD_MAX: u64 = 32 << 20;
/// Minimum size of a prefetch that reads the references of whole regions.
const WHOLE_REGIONS_MIN: u64 = REGION_BYTES / 4;

/// Reads blocks of a state of the database.
pub(crate) struct BlockReader<R> {
    pub(crate) reads: R,
    pub(crate) geometry: Geometry,
    pub(crate) objects: BulkObjects,
    pub(crate) references: RegionReferences,
    sequential: SequentialReads,
}

impl<R: DbReadOps + Send + Sync + 'static> BlockReader<R> {
    pub(crate) fn new(reads: R, geometry: Geometry, objects: BulkObjects) -> Self {
        let references = RegionReferences::new(REGION_BYTES / geometry.block_bytes);
        let sequential = SequentialReads::new(READ_AHEAD_MAX);
        Self { reads, geometry, objects, references, sequential }
    }

    /// Notes a read of the device, and reads ahead of a sequential reader.
    pub(crate) fn note_read(self: &Arc<Self>, offset: u64, len: u64) {
        if let Some(ahead) = self.sequential.note(offset, len, true) {
            self.read_ahead(ahead.start, ahead.end - ahead.start);
        }
    }

    /// Starts to prefetch bytes, unless there are enough prefetches.
    pub(crate) fn read_ahead(self: &Arc<Self>, offset: u64, len: u64) {
        if !self.geometry.has_bulk {
            return;
        }
        let blocks = self.geometry.ahead(offset, len.min(AHEAD_MAX));
        let Some(permit) = self.objects.prefetch_permit() else { return };
        let this = Arc::clone(self);
        runtime::handle().spawn(async move {
            let _permit = permit;
            // The read of these blocks reports errors.
            let _ = this.prefetch(blocks).await;
        });
    }

    /// Fills `buf` with the bytes from `offset`.
    pub(crate) async fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), VolumeError> {
        let Touched { blocks, skip } = self.geometry.touched(offset, buf.len() as u64)?;
        if buf.is_empty() {
            return Ok(());
        }
        let whole = (blocks.end - blocks.start) * self.geometry.block_bytes;
        if whole == buf.len() as u64 {
            return self.read_blocks(blocks, buf).await;
        }
        let mut around = vec![0; whole as usize];
        self.read_blocks(blocks, &mut around).await?;
        buf.copy_from_slice(&around[skip..][..buf.len()]);
        Ok(())
    }

    /// Fills `buf` with whole blocks.
    pub(crate) async fn read_blocks(
        &self,
        blocks: Range<u64>,
        buf: &mut [u8],
    ) -> Result<(), VolumeError> {
        let size = self.geometry.block_bytes as usize;
        let mut bulk = Vec::new();
        let mut filled = 0;
        for (block, value) in self.values(blocks.clone()).await? {
            let at = (block - blocks.start) as usize;
            buf[filled * size..at * size].fill(0);
            filled = at + 1;
            match value {
                BlockValue::Data(data) => buf[at * size..][..size].copy_from_slice(&data),
                BlockValue::Bulk(reference) => bulk.push((reference, at)),
            }
        }
        buf[filled * size..].fill(0);
        if bulk.is_empty() {
            return Ok(());
        }
        self.objects.read(&bulk, buf).await
    }

    /// Loads the values of blocks and their objects into the caches.
    async fn prefetch(&self, blocks: Range<u64>) -> Result<(), VolumeError> {
        let bulk = |(_, value): (u64, BlockValue)| match value {
            BlockValue::Bulk(reference) => Some((reference, 0)),
            BlockValue::Data(_) => None,
        };
        let bytes = (blocks.end - blocks.start) * self.geometry.block_bytes;
        let values = if bytes >= WHOLE_REGIONS_MIN {
            self.load(blocks).await?
        } else {
            self.values(blocks).await?
        };
        let wanted: Vec<_> = values.into_iter().filter_map(bulk).collect();
        self.objects.prefetch(&wanted).await
    }

    /// Returns the values of non-zero blocks, in order.
    pub(crate) async fn values(
        &self,
        blocks: Range<u64>,
    ) -> Result<Vec<(u64, BlockValue)>, VolumeError> {
        let (mut found, rest) = self.known(blocks);
        if rest.end - rest.start <= SINGLE_MAX {
            let rest = try_join_all(rest.map(|block| self.value(block))).await?;
            found.extend(rest.into_iter().flatten());
        } else {
            self.scan(rest, &mut found).await?;
        }
        Ok(found)
    }

    /// Returns the values of non-zero blocks, in order, and caches the references of their regions.
    async fn load(&self, blocks: Range<u64>) -> Result<Vec<(u64, BlockValue)>, VolumeError> {
        let (mut found, rest) = self.known(blocks);
        if rest.is_empty() {
            return Ok(found);
        }
        let regions = self.references.regions(&rest);
        let load = self.references.load(regions.clone());
        let scanned_blocks = self.whole_regions(&rest);
        let mut scanned = Vec::new();
        self.scan(scanned_blocks.clone(), &mut scanned).await?;
        for region in regions {
            let Range { start, end } = self.references.blocks(&(region..region + 1));
            let end = end.min(self.geometry.blocks());
            if scanned_blocks.start <= start && end <= scanned_blocks.end {
                load.add(region, within(&scanned, &(start..end)));
            }
        }
        found.extend_from_slice(within(&scanned, &rest));
        Ok(found)
    }

    /// Extends a range of blocks to whole regions, but not into known ones.
    fn whole_regions(&self, blocks: &Range<u64>) -> Range<u64> {
        let regions = self.references.regions(blocks);
        let Range { mut start, mut end } = self.references.blocks(&regions);
        if self.references.get(regions.start).is_some() {
            start = blocks.start;
        }
        if self.references.get(regions.end - 1).is_some() {
            end = blocks.end;
        }
        start..end.min(self.geometry.blocks())
    }

    /// Returns the values of the first blocks of a range, as far as their references are cached, and the other blocks.
    fn known(&self, blocks: Range<u64>) -> (Vec<(u64, BlockValue)>, Range<u64>) {
        let mut found = Vec::new();
        for region in self.references.regions(&blocks) {
            let Range { start, end } = self.references.blocks(&(region..region + 1));
            let (start, end) = (start.max(blocks.start), end.min(blocks.end));
            let Some(KnownRegion::Bulk(known)) = self.references.get(region) else {
                return (found, start..blocks.end);
            };
            let values = within(&known, &(start..end)).iter();
            found.extend(values.map(|(block, value)| (*block, BlockValue::Bulk(*value))));
        }
        (found, blocks.end..blocks.end)
    }

    /// Adds the values of non-zero blocks in the database.
    async fn scan(
        &self,
        blocks: Range<u64>,
        found: &mut Vec<(u64, BlockValue)>,
    ) -> Result<(), VolumeError> {
        if blocks.is_empty() {
            return Ok(());
        }
        let mut scan = Scan::new(&self.reads, blocks, self.geometry).await?;
        while let Some(value) = scan.next().await? {
            found.push(value);
        }
        Ok(())
    }

    /// Returns the value of one block; `None` means zeros.
    async fn value(&self, block: u64) -> Result<Option<(u64, BlockValue)>, VolumeError> {
        let value = self.reads.get_with_options(key(block), &ReadOptions::default()).await?;
        value.map(|value| Ok((block, self.geometry.parse(block, value)?))).transpose()
    }
}

/// Returns the values of blocks in a range of sorted ones.
fn within<'a, T>(values: &'a [(u64, T)], blocks: &Range<u64>) -> &'a [(u64, T)] {
    let at = |block| values.partition_point(|(it, _)| *it < block);
    &values[at(blocks.start)..at(blocks.end)]
}
