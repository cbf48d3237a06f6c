//! The location of the log, for writing.

use disk::{BlockDevice, DeviceRole};
use vfs::hint::{Hint, Setting};
use vfs::{Corruption, Error, Result};

use crate::format::address::FsBlock;
use crate::format::geometry::Geometry;
use crate::format::log::build::next_cycle;
use crate::format::log::{BLOCK_SIZE, Lsn};
use crate::format::superblock::Superblock;

/// The ring of a log: its location on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    /// Byte offset on the device.
    pub(super) start: u64,
    /// Number of blocks of 512 bytes.
    pub(super) blocks: u32,
}

impl Area {
    /// Returns the area of the log according to a superblock.
    ///
    /// # Errors
    /// `Corrupt` if its fields are invalid. `Unsupported` if the log is on another device, which is missing or too
    /// short, or if such a device is given for a log in the image.
    pub(super) fn of(device: &dyn BlockDevice, sb: &Superblock) -> Result<Self> {
        let damage = || Corruption::new("superblock", "the log is not inside an allocation group");
        Ok(Self::find(device, sb)?.ok_or_else(damage)?)
    }

    /// Like [`Area::of`], but returns `None` if the superblock's log fields are invalid.
    ///
    /// # Errors
    /// `Unsupported` as [`Area::of`].
    pub(super) fn find(device: &dyn BlockDevice, sb: &Superblock) -> Result<Option<Self>> {
        let raw = &sb.raw;
        let (first, len) = (FsBlock(raw.logstart.get()), u64::from(raw.logblocks.get()));
        let blocks = u32::try_from((len << raw.blocklog) / BLOCK_SIZE as u64).ok();
        let Some(blocks) = blocks.filter(|blocks| *blocks >= 2) else { return Ok(None) };
        if first.0 == 0 {
            return Self::on_log_device(device, blocks).map(Some);
        }
        if device.part_len(DeviceRole::Log).is_some() {
            return Err(Error::unsupported(
                "a log device for an image that contains its log",
                Hint::LeaveOut(Setting::LOG_DEVICE),
            ));
        }
        let geometry = Geometry::new(sb);
        let start = geometry.byte_of(geometry.device_block(first));
        Ok(geometry.contains(first, len).then_some(Self { start, blocks }))
    }

    /// Returns the area of a log at the start of another device.
    fn on_log_device(device: &dyn BlockDevice, blocks: u32) -> Result<Self> {
        let Some(len) = device.part_len(DeviceRole::Log) else {
            return Err(Error::unsupported("an external log", Hint::NameLog("log")));
        };
        let needed = u64::from(blocks) * BLOCK_SIZE as u64;
        if len < needed {
            let what = format!("a log device of {len} bytes for a log of {needed} bytes");
            return Err(Error::unsupported(what, "name the device that contains the log"));
        }
        Ok(Self { start: DeviceRole::Log.start(), blocks })
    }

    /// Returns the number of blocks from one position to a later one, at most one round away.
    pub(super) const fn distance(&self, from: Lsn, to: Lsn) -> u32 {
        if from.cycle == to.cycle {
            to.block - from.block
        } else {
            self.blocks - from.block + to.block
        }
    }

    /// Returns the position `blocks` blocks after another.
    pub(super) const fn after(&self, from: Lsn, blocks: u32) -> Lsn {
        let block = from.block + blocks;
        if block < self.blocks {
            Lsn { block, ..from }
        } else {
            Lsn { cycle: next_cycle(from.cycle), block: block - self.blocks }
        }
    }

    /// Writes whole blocks from `block` on, wrapping around the end of the ring.
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
