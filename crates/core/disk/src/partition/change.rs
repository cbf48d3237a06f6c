//! Changes the length of a partition, in GPT and MBR.
//!
//! A GPT has two copies. The copy at the end of the disk is made durable before the other one is written, so one copy
//! is valid at any moment. An MBR is one sector, and so is each record of a logical partition.

use crate::BlockDevice;

use super::gpt_edit::GptTable;
use super::logical::Extended;
use super::{Partition, PartitionError, find, mbr, read};

/// Maximum number of a primary partition.
const PRIMARY_MAX: u32 = 4;

/// Returns the disk size in bytes that a partition of `bytes` bytes requires. It may exceed the current size if only
/// the end of the disk is in the way.
///
/// # Errors
/// If another partition is in the way, or the partition has an unsupported kind.
pub fn disk_for(device: &dyn BlockDevice, number: u32, bytes: u64) -> Result<u64, PartitionError> {
    let partition = find(device, number)?;
    let end = partition.offset.saturating_add(bytes);
    let table = GptTable::read(device)?;
    let others = read(device)?.unwrap_or_default();
    let others =
        others.iter().map(|other| (other.offset, format!("partition {} follows", other.number)));
    let records = if table.is_none() { records(device)? } else { Vec::new() };
    let behind = others.chain(records).filter(|(start, _)| *start > partition.offset);
    if let Some((start, what)) = behind.min_by_key(|(start, _)| *start)
        && start < end
    {
        return Err(no_room(&partition, start, bytes, what));
    }
    Ok(table.map_or(device.len().max(end), |table| table.disk_for(device.len(), end)))
}

fn no_room(partition: &Partition, limit: u64, wanted: u64, what: String) -> PartitionError {
    PartitionError::NoRoom {
        number: partition.number,
        wanted,
        room: limit - partition.offset,
        what,
    }
}

/// Changes the length of a partition to `bytes` bytes, rounded up to whole sectors. There must be room: see
/// [`disk_for`]. The change is durable on return.
///
/// # Errors
/// If the table cannot represent the length, the partition has an unsupported kind, or the device fails.
pub fn resize(device: &dyn BlockDevice, number: u32, bytes: u64) -> Result<(), PartitionError> {
    let partition = find(device, number)?;
    if let Some(mut table) = GptTable::read(device)? {
        table.set_len(number, bytes)?;
        return table.write(device);
    }
    let sectors = bytes.div_ceil(mbr::SECTOR_BYTES as u64);
    let is_addressable = u32::try_from(sectors).is_ok()
        && partition.offset / (mbr::SECTOR_BYTES as u64) + sectors <= 1 << 32;
    if !is_addressable {
        return Err(PartitionError::Unsupported {
            number,
            what: "too large for an MBR, which ends at 2 TiB; use a disk with a GPT",
        });
    }
    if number > PRIMARY_MAX
        && let Some(extended) = extended(device)?
    {
        return extended.resize(device, number, sectors as u32);
    }
    let mut sector = mbr_sector(device)?;
    mbr::set_sectors(&mut sector, number as usize - 1, sectors as u32);
    device.write_at(0, &sector)?;
    Ok(device.flush()?)
}

fn mbr_sector(device: &dyn BlockDevice) -> Result<Vec<u8>, PartitionError> {
    let mut sector = vec![0; mbr::SECTOR_BYTES];
    device.read_at(0, &mut sector)?;
    Ok(sector)
}

/// Reads the extended partition: the last one, if there are several.
fn extended(device: &dyn BlockDevice) -> Result<Option<Extended>, PartitionError> {
    let entries = mbr::parse(&mbr_sector(device)?).unwrap_or_default();
    let entry = entries.into_iter().rfind(mbr::MbrEntry::is_extended);
    entry.map(|entry| Extended::read(device, entry)).transpose()
}

/// Returns offsets and descriptions of boot records, which no partition may overlap.
fn records(device: &dyn BlockDevice) -> Result<Vec<(u64, String)>, PartitionError> {
    let entries = mbr::parse(&mbr_sector(device)?).unwrap_or_default();
    let starts = entries.iter().filter(|entry| entry.is_extended());
    let starts = starts.map(|entry| entry.first * mbr::SECTOR_BYTES as u64);
    let starts = starts.map(|start| (start, "an extended partition follows".into()));
    let extended = extended(device)?;
    let records = extended.iter().flat_map(Extended::record_offsets);
    let what = "the record of another logical partition follows";
    Ok(starts.chain(records.map(|start| (start, what.into()))).collect())
}
