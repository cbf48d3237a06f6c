//! The MMP block on a device.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use disk::BlockDevice;
use vfs::{Corruption, Error, Result};
use zerocopy::IntoBytes;

use crate::format::address::Block;
use crate::format::geometry::Geometry;
use crate::format::mmp::{RawMmp, SIZE};
use crate::format::superblock::Superblock;

/// The MMP block on a device. Each read and write reaches the storage.
pub(super) struct MmpBlock {
    pub(super) device: Arc<dyn BlockDevice>,
    number: Block,
    offset: u64,
    /// Seed of checksums, if there are any.
    seed: Option<u32>,
}

impl MmpBlock {
    /// Returns the block to which the superblock refers.
    ///
    /// # Errors
    /// `Corrupt` for an impossible location.
    pub(super) fn of(device: Arc<dyn BlockDevice>, sb: &Superblock) -> Result<Self> {
        let number = Block(sb.raw.mmp_block.get());
        let geometry = Geometry::new(sb);
        let is_system = |block| geometry.superblock_of(geometry.group_of(block)) == Some(block);
        if !geometry.contains(number, 1) || is_system(number) {
            let found = format!("block {number}");
            let damage = Corruption::new("superblock", "location of the MMP block");
            let damage = damage.mismatch("a block of the file system", found);
            return Err(damage.advise("run diskwright repair").into());
        }
        let seed = sb.features.metadata_csum().then_some(sb.checksum_seed);
        Ok(Self { device, number, offset: geometry.byte_of(number), seed })
    }

    /// Returns the bytes of the structure on the device.
    pub(super) fn range(&self) -> Range<u64> {
        self.offset..self.offset + SIZE as u64
    }

    /// Reads and verifies the block.
    pub(super) fn read(&self) -> Result<RawMmp> {
        let mut bytes = [0; SIZE];
        self.device.drop_cache(self.offset, SIZE as u64);
        self.device.read_at(self.offset, &mut bytes).map_err(Error::Device)?;
        RawMmp::parse(&bytes, self.seed)
            .map_err(|damage| damage.at_block(self.number.0).advise("run diskwright repair").into())
    }

    /// Computes the checksum of a block and writes it durably.
    pub(super) fn write(&self, raw: &mut RawMmp) -> io::Result<()> {
        raw.seal(self.seed);
        self.put(raw.as_bytes())
    }

    /// Writes the bytes of the structure durably.
    pub(super) fn put(&self, bytes: &[u8]) -> io::Result<()> {
        self.device.write_at(self.offset, bytes)?;
        self.device.flush()
    }

    /// Returns the error for a damaged field.
    pub(super) fn damage(&self, field: &'static str, found: String) -> Error {
        let damage = Corruption::new("MMP block", field).at_block(self.number.0);
        let damage = damage.mismatch("that of a host, a check or an unused file system", found);
        damage.advise("run diskwright repair").into()
    }
}
