//! Compaction: stores the blocks of a region as one new object.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::volume::VolumeError;
use crate::volume::blocks::Scan;
use crate::volume::bulk::{BlockValue, BulkWriter, DirtyBlocks};

/// Maximum number of blocks of data in a region with one object. Table reads get them with the references.
const DATA_BLOCKS_MAX: usize = 16;

/// Returns whether a region has to be compacted, so that a read of it takes few gets.
fn is_due<'a>(values: impl Iterator<Item = &'a BlockValue>) -> bool {
    let (mut data, mut objects) = (0, BTreeSet::new());
    for value in values {
        match value {
            BlockValue::Data(_) => data += 1,
            BlockValue::Bulk(reference) => {
                objects.insert(reference.object);
            }
        }
    }
    objects.len() > 1 || objects.len() == 1 && data > DATA_BLOCKS_MAX
}

impl BulkWriter {
    /// Compacts a region that is due and not being written. Returns whether it did.
    pub(crate) async fn compact(&self, region: u64) -> Result<bool, VolumeError> {
        let blocks = self.pending.region_blocks();
        let blocks = region * blocks..(region + 1) * blocks;
        // The lock excludes writes until the new references are in the database.
        let Some(_held) = self.pending.hold_region(region) else {
            // It is tried again later.
            self.pending.note_written(blocks);
            return Ok(false);
        };
        let values = self.reader.values(blocks.clone()).await?;
        if !is_due(values.iter().map(|(_, value)| value)) {
            return Ok(false);
        }
        let size = self.reader.geometry.block_bytes as usize;
        let mut data = vec![0; (blocks.end - blocks.start) as usize * size];
        self.reader.read_blocks(blocks.clone(), &mut data).await?;
        let data = Bytes::from(data);
        let contents: DirtyBlocks = values
            .iter()
            .map(|(block, _)| {
                let at = (block - blocks.start) as usize * size;
                (*block, data.slice(at..at + size))
            })
            .collect();
        self.write_bulk(&contents).await?;
        Ok(true)
    }

    /// Compacts all regions that are due. Returns their number.
    pub(crate) async fn compact_all(&self) -> Result<u64, VolumeError> {
        let size = self.pending.region_blocks();
        let geometry = self.reader.geometry;
        let mut scan = Scan::new(self.db(), 0..geometry.blocks(), geometry).await?;
        let (mut region, mut values, mut compacted) = (0, Vec::new(), 0);
        loop {
            let next = scan.next().await?;
            let next_region = next.as_ref().map(|(block, _)| block / size);
            if next_region != Some(region) {
                if is_due(values.iter()) && self.compact(region).await? {
                    compacted += 1;
                }
                values.clear();
            }
            let (Some((_, value)), Some(next_region)) = (next, next_region) else {
                return Ok(compacted);
            };
            region = next_region;
            values.push(value);
        }
    }
}
