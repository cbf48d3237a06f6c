//! The copies of the superblock at the start of every other group, for images whose first one is
//! damaged.
//!
//! A copy is as old as the last mkfs or growth. What it says of sizes and features holds; its totals do
//! not, but those are summed up from the groups anyway. Nothing is written by what it says.

use std::sync::Arc;

use blockdev::{BlockDevice, OverlayDevice};
use vfs::{Corruption, Error, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::format::address::AgNumber;
use crate::format::checksum;
use crate::format::superblock::{CRC_OFFSET, RawSuperblock, SUPERBLOCK_SIZE, Superblock};

/// Most copies that are looked at. Any will do but those that do not know the root directory.
const COPIES_MAX: u32 = 64;
/// Largest block, as a power of two, and the largest sector in bytes.
const BLOCK_LOG_MAX: u8 = 16;
const SECTOR_SIZE_MAX: u16 = 32 << 10;
/// What mkfs leaves in copies it does not fill in (`NULLFSINO`).
const NO_INODE: u64 = u64::MAX;

/// A sound copy.
pub(crate) struct Copy {
    ag: AgNumber,
    sector: Vec<u8>,
}

impl Copy {
    /// A sound copy that knows the root directory: mkfs sees to it that the last group's does. It is
    /// looked for where the damaged superblock would have it.
    pub(crate) fn find(device: &dyn BlockDevice) -> Option<Self> {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        if device.len() < SUPERBLOCK_SIZE as u64 {
            return None;
        }
        device.read_at(0, &mut bytes).ok()?;
        let damaged = RawSuperblock::read_from_bytes(&bytes).ok()?;
        if Self::is_sealed(device, &damaged) {
            // It is as it was written: what it says, such as that mkfs never finished, is so.
            return None;
        }
        let count = damaged.agcount.get();
        let middle = count / 2;
        let nearer = (1..count).take(COPIES_MAX as usize);
        let mut ags = [count.saturating_sub(1), middle].into_iter().chain(nearer);
        ags.find_map(|ag| Self::at(device, &damaged, ag))
    }

    /// Whether the checksum of the first superblock is right.
    fn is_sealed(device: &dyn BlockDevice, first: &RawSuperblock) -> bool {
        let len = usize::from(first.sectsize.get().min(SECTOR_SIZE_MAX)).max(SUPERBLOCK_SIZE);
        let mut sector = vec![0; len];
        first.features().crc()
            && device.read_at(0, &mut sector).is_ok()
            && checksum::check("superblock", &sector, CRC_OFFSET).is_ok()
    }

    fn at(device: &dyn BlockDevice, damaged: &RawSuperblock, ag: u32) -> Option<Self> {
        let (ag_blocks, block_log) = (damaged.agblocks.get(), damaged.blocklog);
        let sector_size = damaged.sectsize.get();
        if ag == 0 || block_log > BLOCK_LOG_MAX || sector_size > SECTOR_SIZE_MAX {
            return None;
        }
        let offset = (u64::from(ag) * u64::from(ag_blocks)).checked_mul(1 << block_log)?;
        let mut sector = vec![0; usize::from(sector_size).max(SUPERBLOCK_SIZE)];
        if offset.checked_add(sector.len() as u64)? > device.len() {
            return None;
        }
        device.read_at(offset, &mut sector).ok()?;
        let mut raw = RawSuperblock::read_from_prefix(&sector).ok()?.0;
        let is_ours = raw.features().crc()
            && checksum::check("superblock", &sector, CRC_OFFSET).is_ok()
            && (raw.agblocks.get(), raw.blocklog) == (ag_blocks, block_log)
            && ![0, NO_INODE].contains(&raw.rootino.get());
        if !is_ours {
            return None;
        }
        // mkfs leaves the mark in copies.
        raw.inprogress = 0;
        sector[..SUPERBLOCK_SIZE].copy_from_slice(raw.as_bytes());
        checksum::seal(&mut sector, CRC_OFFSET);
        Superblock::parse(&sector, device.len()).ok()?;
        Some(Self { ag: AgNumber(ag), sector })
    }

    /// A view of the device with the copy in the place of the superblock.
    pub(crate) fn in_place(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>> {
        let view = OverlayDevice::new(device);
        view.write_at(0, &self.sector).map_err(Error::Device)?;
        Ok(Arc::new(view))
    }

    /// What to say when the image is read by this copy.
    pub(crate) fn remark(&self, damage: &Corruption) -> String {
        format!("{damage}; the image is read by the copy in group {}", self.ag.0)
    }
}

/// Adds to a damaged superblock's error where a sound copy is, and what can be done with that.
pub(crate) fn advise(device: &dyn BlockDevice, error: Error) -> Error {
    match (error, Copy::find(device)) {
        (Error::Corrupt(damage), Some(Copy { ag, .. })) => damage
            .advise(format!(
                "the copy in group {} is sound: xfs_repair repairs the image by it, and it can be read \
                 as it is",
                ag.0
            ))
            .into(),
        (error, _) => error,
    }
}
