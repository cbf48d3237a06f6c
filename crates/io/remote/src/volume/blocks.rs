//! Maps blocks to keys and values, and reads them.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use futures_util::future::try_join_all;
use slatedb::config::{ReadOptions, ScanOptions};
use slatedb::{DbIterator, DbReadOps};

use crate::volume::VolumeError;
use crate::volume::marker::Marker;

/// Prefix of block keys.
const BLOCK: u8 = b'b';
/// Key of the volume's size. The value must match the marker.
pub(crate) const SIZE: &[u8] = b"size";
/// Maximum number of blocks that are read by individual concurrent lookups. Larger ranges are scanned.
const SINGLE_MAX: u64 = 4;
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

/// Size of a device and of its blocks, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(crate) len: u64,
    pub(crate) block_bytes: u64,
}

/// The blocks that a byte range overlaps.
pub(crate) struct Touched {
    pub(crate) blocks: Range<u64>,
    /// Offset of the range in its first block.
    pub(crate) skip: usize,
}

impl Geometry {
    pub(crate) fn new(marker: &Marker) -> Self {
        Self { len: marker.len, block_bytes: marker.block_bytes.into() }
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

    /// Fills `buf` with the bytes from `offset`.
    pub(crate) async fn read(
        self,
        reads: &(impl DbReadOps + Sync),
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), VolumeError> {
        let Touched { blocks, skip } = self.touched(offset, buf.len() as u64)?;
        if buf.is_empty() {
            return Ok(());
        }
        let whole = (blocks.end - blocks.start) * self.block_bytes;
        if whole == buf.len() as u64 {
            return self.read_blocks(reads, blocks, buf).await;
        }
        let mut around = vec![0; whole as usize];
        self.read_blocks(reads, blocks, &mut around).await?;
        buf.copy_from_slice(&around[skip..][..buf.len()]);
        Ok(())
    }

    async fn read_blocks(
        self,
        reads: &(impl DbReadOps + Sync),
        blocks: Range<u64>,
        buf: &mut [u8],
    ) -> Result<(), VolumeError> {
        if blocks.end - blocks.start <= SINGLE_MAX {
            let found = try_join_all(blocks.clone().map(|block| self.block(reads, block))).await?;
            for (block, out) in found.iter().zip(buf.chunks_mut(self.block_bytes as usize)) {
                fill(out, block.as_deref());
            }
            return Ok(());
        }
        buf.fill(0);
        let mut scan = Scan::new(reads, blocks.clone(), self).await?;
        while let Some((block, value)) = scan.next().await? {
            let at = (block - blocks.start) * self.block_bytes;
            buf[at as usize..][..value.len()].copy_from_slice(&value);
        }
        Ok(())
    }

    /// Reads one block; `None` means zeros.
    pub(crate) async fn block(
        self,
        reads: &(impl DbReadOps + Sync),
        block: u64,
    ) -> Result<Option<Bytes>, VolumeError> {
        let value = reads.get_with_options(key(block), &ReadOptions::default()).await?;
        value.map(|value| self.checked(block, value)).transpose()
    }

    fn checked(self, block: u64, value: Bytes) -> Result<Bytes, VolumeError> {
        if value.len() as u64 == self.block_bytes {
            return Ok(value);
        }
        let (found, expected) = (value.len(), self.block_bytes);
        Err(VolumeError::Damaged(format!("block {block} has {found} bytes, not {expected}")))
    }
}

fn fill(out: &mut [u8], value: Option<&[u8]>) {
    match value {
        Some(value) => out.copy_from_slice(value),
        None => out.fill(0),
    }
}

/// Iterates over the non-zero blocks of a range, in order.
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

    pub(crate) async fn next(&mut self) -> Result<Option<(u64, Bytes)>, VolumeError> {
        let Some(found) = self.found.next().await? else { return Ok(None) };
        let block = block_of(&found.key).ok_or_else(|| {
            VolumeError::Damaged("the database contains an invalid block key".into())
        })?;
        Ok(Some((block, self.geometry.checked(block, found.value)?)))
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
