//! The owner of a log on another device: the UUID in its records must be that of the superblock.
//!
//! A log in the image belongs to it wherever the superblock says so. Another device may be named by mistake, and must
//! not be replayed or overwritten then.

use disk::BlockDevice;
use vfs::{Corruption, Error, Result};
use zerocopy::FromBytes;

use super::area::Area;
use crate::format::log::{BLOCK_SIZE, Lsn, RECORD_MAGIC, RawRecordHeader};
use crate::format::superblock::Superblock;

/// Number of blocks read at a time.
const BATCH: u32 = 2048;

/// Checks that a log belongs to the file system with a UUID. `last` is its last record, if that was found.
///
/// # Errors
/// `Unsupported` for a log of another file system, or a device without a log. `Corrupt` for a device of zeros, on which
/// a repair may write a new log. If the device fails.
pub(super) fn check(
    device: &dyn BlockDevice,
    area: Area,
    expected: [u8; 16],
    last: Option<Lsn>,
) -> Result<()> {
    let found = match last {
        Some(last) => uuid_at(device, area, last)?,
        None => any_uuid(device, area, expected)?,
    };
    match found {
        DeviceContents::Uuid(uuid) if uuid == expected => Ok(()),
        DeviceContents::Uuid(uuid) => {
            let [found, expected] = [uuid, expected].map(u128::from_be_bytes);
            let what =
                format!("a log device of file system {found:032x}, expected {expected:032x}");
            Err(Error::unsupported(what, "name the log device of this image"))
        }
        DeviceContents::Zeros => {
            let advice = "if the log is lost, write a new one with diskwright repair";
            Err(Corruption::new("log device", "all zeros, without a record").advise(advice).into())
        }
        DeviceContents::Others => {
            let advice = "name the log device of this image; to lose its log, clear the device and \
                          run diskwright repair";
            Err(Error::unsupported("a log device without a record of a log", advice))
        }
    }
}

/// Returns the UUID in the record at a position of the log, or `None` without a valid record.
pub(crate) fn uuid_of_log(device: &dyn BlockDevice, sb: &Superblock, at: Lsn) -> Option<[u8; 16]> {
    let area = Area::of(device, sb).ok()?;
    match uuid_at(device, area, at).ok()? {
        DeviceContents::Uuid(uuid) => Some(uuid),
        DeviceContents::Zeros | DeviceContents::Others => None,
    }
}

/// Contents of a device.
enum DeviceContents {
    Uuid([u8; 16]),
    Zeros,
    Others,
}

/// Returns the UUID of a record.
fn record_uuid(block: &[u8]) -> Option<[u8; 16]> {
    let (header, _) = RawRecordHeader::ref_from_prefix(block).ok()?;
    (header.magicno.get() == RECORD_MAGIC).then_some(header.fs_uuid)
}

/// Returns the UUID of the record at a position.
fn uuid_at(device: &dyn BlockDevice, area: Area, at: Lsn) -> Result<DeviceContents> {
    let mut block = [0; BLOCK_SIZE];
    read(device, area, at.block, &mut block)?;
    Ok(record_uuid(&block).map_or(DeviceContents::Others, DeviceContents::Uuid))
}

fn read(device: &dyn BlockDevice, area: Area, block: u32, bytes: &mut [u8]) -> Result<()> {
    let offset = area.start + u64::from(block) * BLOCK_SIZE as u64;
    device.read_at(offset, bytes).map_err(Error::Device)
}

/// Returns the expected UUID if any record has it, and otherwise that of the first record.
fn any_uuid(device: &dyn BlockDevice, area: Area, expected: [u8; 16]) -> Result<DeviceContents> {
    let (mut first, mut is_zero) = (None, true);
    let mut bytes = vec![0; BATCH as usize * BLOCK_SIZE];
    for start in (0..area.blocks).step_by(BATCH as usize) {
        let count = BATCH.min(area.blocks - start) as usize;
        let bytes = &mut bytes[..count * BLOCK_SIZE];
        read(device, area, start, bytes)?;
        is_zero &= disk::is_zero(bytes);
        for uuid in bytes.chunks_exact(BLOCK_SIZE).filter_map(record_uuid) {
            if uuid == expected {
                return Ok(DeviceContents::Uuid(uuid));
            }
            first.get_or_insert(uuid);
        }
    }
    Ok(match first {
        Some(uuid) => DeviceContents::Uuid(uuid),
        None if is_zero => DeviceContents::Zeros,
        None => DeviceContents::Others,
    })
}
