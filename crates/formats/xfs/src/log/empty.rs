//! Writing an empty log with a given cycle.

use disk::BlockDevice;
use vfs::{Error, Result};

use super::area::Area;
use super::bounds::Bounds;
use super::stale;
use crate::format::log::{BLOCK_SIZE, Lsn, Unmount, unmount_record};
use crate::format::superblock::Superblock;

/// Writes the unmount record of an unused log, as mkfs does, with a UUID. The kernel requires the UUID of the superblock
/// in it, not that of the metadata.
///
/// # Errors
/// As [`write_clean`].
pub(crate) fn write_first(device: &dyn BlockDevice, sb: &Superblock, uuid: [u8; 16]) -> Result<()> {
    let area = Area::of(device, sb)?;
    let lsn = Lsn { cycle: 1, block: 0 };
    let record =
        unmount_record(&Unmount { lsn, previous: None, uuid, unit: sb.raw.logsunit.get() });
    area.write(device, 0, &record).map_err(Error::Device)
}

/// Writes the whole log: an unmount record in cycle `cycle` (at least 1), followed by blocks of the previous cycle.
///
/// # Errors
/// If the device fails; `Corrupt` if the superblock's log fields are invalid; `Unsupported` if its device is missing.
pub(crate) fn write_clean(device: &dyn BlockDevice, sb: &Superblock, cycle: u32) -> Result<()> {
    let area = Area::of(device, sb)?;
    let start = Lsn { cycle, block: 0 };
    let unit = sb.raw.logsunit.get();
    let unmount = Unmount { lsn: start, previous: None, uuid: sb.raw.uuid, unit };
    let record = unmount_record(&unmount);
    let len = (record.len() / BLOCK_SIZE) as u32;
    if len >= area.blocks {
        return Err(vfs::Corruption::new("superblock", "a log without free space").into());
    }
    area.write(device, 0, &record).map_err(Error::Device)?;
    let bounds = Bounds { tail: start, head: Lsn { cycle, block: len } };
    if cycle == 1 {
        let rest = u64::from(area.blocks - len) * BLOCK_SIZE as u64;
        let byte = area.start + record.len() as u64;
        return device.zero_range(byte, rest).map_err(Error::Device);
    }
    stale::fill(device, sb, &bounds, area.blocks - len)
}
