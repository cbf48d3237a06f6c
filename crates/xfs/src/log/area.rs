//! Where the log lies, for writing.

use blockdev::BlockDevice;
use vfs::{Corruption, Result};

use crate::format::address::FsBlock;
use crate::format::geometry::Geometry;
use crate::format::log::BLOCK_SIZE;
use crate::format::superblock::Superblock;

/// The ring of a log: its place on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    /// First byte on the device.
    start: u64,
    /// Blocks of 512 bytes.
    pub(super) blocks: u32,
}

impl Area {
    /// The log that a superblock names.
    pub(super) fn of(sb: &Superblock) -> Result<Self> {
        let raw = &sb.raw;
        let geometry = Geometry::new(sb);
        let (first, len) = (FsBlock(raw.logstart.get()), u64::from(raw.logblocks.get()));
        let blocks = u32::try_from((len << raw.blocklog) / BLOCK_SIZE as u64).ok();
        let blocks = blocks.filter(|_| raw.logstart.get() != 0 && geometry.contains(first, len));
        let damage = || Corruption::new("superblock", "the log is not in a group");
        let blocks = blocks.ok_or_else(damage)?;
        Ok(Self { start: geometry.byte_of(geometry.device_block(first)), blocks })
    }

    /// Writes whole blocks from `block` on, around the end of the ring where need be.
    pub(super) fn write(
        &self,
        device: &dyn BlockDevice,
        block: u32,
        bytes: &[u8],
    ) -> std::io::Result<()> {
        let to_end = (self.blocks - block) as usize * BLOCK_SIZE;
        let (now, later) = bytes.split_at(bytes.len().min(to_end));
        device.write_at(self.start + u64::from(block) * BLOCK_SIZE as u64, now)?;
        if later.is_empty() { Ok(()) } else { device.write_at(self.start, later) }
    }
}
