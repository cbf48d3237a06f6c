//! Maps blocks to keys and values of the database.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use slatedb::config::ScanOptions;
use slatedb::{DbIterator, DbReadOps};

use crate::volume::VolumeError;
use crate::volume::bulk::{BlockValue, Reference};
use crate::volume::marker::Marker;

/// Prefix of block keys.
const BLOCK: u8 = b'b';
/// Key of the volume's size. The value must match the marker.
pub(crate) const SIZE: &[u8] = b"size";
/// Key of the largest epoch of a writer with bulk objects.
pub(crate) const EPOCH: &[u8] = b"epoch";
/// Maximum number of blocks in one write of data to the database.
pub(crate) const BATCH_BLOCKS: usize = 256;
/// Read-ahead of a scan, and its number of concurrent requests.
const AHEAD_BYTES: usize = 2 << 20;
const AHEAD_REQUESTS: usize = 4;

/// Returns the key of a block. Keys sort in block order.
pub(crate) fn key(block: u64) -> [u8; 9] {
    let mut key = [BLOCK; 9];
    key[1..].copy_from_slice(&block.to_be_bytes());
    key
}

fn block_of(key: &[u8]) -> Option<u64> {
    match key.split_first()? {
        (&BLOCK, number) => Some(u64::from_be_bytes(number.try_into().ok()?)),
        _ => None,
    }
}

/// Returns the value of [`SIZE`].
pub(crate) fn size_value(marker: &Marker) -> Vec<u8> {
    [marker.len.to_be_bytes().as_slice(), &marker.block_bytes.to_be_bytes()].concat()
}

/// Reads the value of [`EPOCH`]; `None` if no writer had bulk objects.
pub(crate) async fn recorded_epoch(
    reads: &(impl DbReadOps + Sync),
) -> Result<Option<u64>, VolumeError> {
    let Some(value) = reads.get(EPOCH).await? else { return Ok(None) };
    let epoch = value.as_ref().try_into().map(u64::from_be_bytes).map_err(|_| {
        VolumeError::Damaged(format!("its recorded epoch has {} bytes, not 8", value.len()))
    })?;
    Ok(Some(epoch))
}

/// Size of a device and of its blocks, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(crate) len: u64,
    pub(crate) block_bytes: u64,
    /// Set if values may be references.
    pub(crate) has_bulk: bool,
}

/// The blocks that a byte range overlaps.
pub(crate) struct Touched {
    pub(crate) blocks: Range<u64>,
    /// Offset of the range in its first block.
    pub(crate) skip: usize,
}

impl Geometry {
    pub(crate) fn new(marker: &Marker) -> Self {
        Self {
            len: marker.len,
            block_bytes: marker.block_bytes.into(),
            has_bulk: marker.has_bulk(),
        }
    }

    /// Checks that the database belongs to the marker.
    pub(crate) async fn check(
        reads: &(impl DbReadOps + Sync),
        marker: &Marker,
    ) -> Result<Self, VolumeError> {
        let found = reads.get(SIZE).await?;
        if found.as_deref() != Some(&size_value(marker)) {
            let what = "the sizes in its database and its marker differ";
            return Err(VolumeError::Damaged(what.into()));
        }
        Ok(Self::new(marker))
    }

    /// Returns the number of blocks.
    pub(crate) const fn blocks(self) -> u64 {
        self.len / self.block_bytes
    }

    /// Returns the blocks to prefetch for a range of bytes, clipped to the device.
    pub(crate) fn ahead(self, offset: u64, len: u64) -> Range<u64> {
        let end = offset.saturating_add(len).min(self.len);
        offset / self.block_bytes..end.div_ceil(self.block_bytes)
    }

    pub(crate) fn touched(self, offset: u64, len: u64) -> io::Result<Touched> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => {
                let blocks = offset / self.block_bytes..end.div_ceil(self.block_bytes);
                Ok(Touched { blocks, skip: (offset % self.block_bytes) as usize })
            }
            _ => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("bytes {offset}+{len} are past the end of the volume ({} bytes)", self.len),
            )),
        }
    }

    pub(crate) fn parse(self, block: u64, value: Bytes) -> Result<BlockValue, VolumeError> {
        if value.len() as u64 == self.block_bytes {
            return Ok(BlockValue::Data(value));
        }
        if let Some(reference) = Reference::parse(&value).filter(|_| self.has_bulk) {
            return Ok(BlockValue::Bulk(reference));
        }
        let (found, expected) = (value.len(), self.block_bytes);
        Err(VolumeError::Damaged(format!(
            "the value of block {block} is neither {expected} bytes of data nor a reference \
             ({found} bytes)"
        )))
    }
}

/// Iterates over the values of the non-zero blocks of a range, in order.
pub(crate) struct Scan {
    found: DbIterator,
    geometry: Geometry,
}

impl Scan {
    pub(crate) async fn new(
        reads: &(impl DbReadOps + Sync),
        blocks: Range<u64>,
        geometry: Geometry,
    ) -> Result<Self, VolumeError> {
        let bytes = (blocks.end - blocks.start).saturating_mul(geometry.block_bytes);
        let ahead = usize::try_from(bytes).unwrap_or(usize::MAX).clamp(1, AHEAD_BYTES);
        let options = ScanOptions::default()
            .with_read_ahead_bytes(ahead)
            .with_max_fetch_tasks(AHEAD_REQUESTS)
            .with_cache_blocks(true);
        let keys = key(blocks.start).to_vec()..key(blocks.end).to_vec();
        Ok(Self { found: reads.scan_with_options(keys, &options).await?, geometry })
    }

    pub(crate) async fn next(&mut self) -> Result<Option<(u64, BlockValue)>, VolumeError> {
        let Some(found) = self.found.next().await? else { return Ok(None) };
        let block = block_of(&found.key).ok_or_else(|| {
            VolumeError::Damaged("the database contains an invalid block key".into())
        })?;
        Ok(Some((block, self.geometry.parse(block, found.value)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_blocks() {
        assert!(key(255) < key(256) && key(u64::from(u32::MAX)) < key(1 << 32));
        assert_eq!(block_of(&key(77)), Some(77));
        assert_eq!(block_of(SIZE), None);
    }
}
