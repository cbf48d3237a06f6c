//! Changing the length of a partition, in GPT and MBR.
//!
//! A GPT has two copies. The one at the end of the disk is written first, and durable before the other one is, so that
//! one of them is whole at any moment. An MBR is one sector.

use blockdev::BlockDevice;

use super::gpt_edit::Table;
use super::{Partition, PartitionError, find, mbr, read};

/// The bytes that a disk needs for a partition to have `bytes` bytes: more than it has, if nothing but the end of the
/// disk is in the way.
///
/// # Errors
/// If another partition is in the way, or the kind of partition cannot be changed.
pub fn disk_for(device: &dyn BlockDevice, number: u32, bytes: u64) -> Result<u64, PartitionError> {
    let partition = find(device, number)?;
    let end = partition.offset.saturating_add(bytes);
    let others = read(device)?.unwrap_or_default();
    let next =
        others.iter().filter(|other| other.offset > partition.offset).min_by_key(|p| p.offset);
    if let Some(next) = next.filter(|next| next.offset < end) {
        return Err(no_room(
            &partition,
            next.offset,
            bytes,
            format!("partition {} follows", next.number),
        ));
    }
    match Table::read(device)? {
        Some(table) => Ok(table.disk_for(device.len(), end)),
        None => {
            let sector = mbr_sector(device)?;
            if let Some(start) = extended_behind(&sector, partition.offset).filter(|at| *at < end) {
                return Err(no_room(
                    &partition,
                    start,
                    bytes,
                    "an extended partition follows".into(),
                ));
            }
            Ok(device.len().max(end))
        }
    }
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
/// [`disk_for`]. Durable when it returns.
///
/// # Errors
/// If the table cannot say so, the kind of partition cannot be changed, or the device fails.
pub fn resize(device: &dyn BlockDevice, number: u32, bytes: u64) -> Result<(), PartitionError> {
    let partition = find(device, number)?;
    if let Some(mut table) = Table::read(device)? {
        table.set_len(number, bytes)?;
        return table.write(device);
    }
    if number > 4 {
        return Err(PartitionError::Unsupported {
            number,
            what: "a logical partition, which this program does not change; use sfdisk for the table",
        });
    }
    let mut sector = mbr_sector(device)?;
    let sectors = bytes.div_ceil(mbr::SECTOR_BYTES as u64);
    let is_addressable = u32::try_from(sectors).is_ok()
        && partition.offset / (mbr::SECTOR_BYTES as u64) + sectors <= 1 << 32;
    if !is_addressable {
        return Err(PartitionError::Unsupported {
            number,
            what: "too large for an MBR, which ends at 2 TiB; use a disk with a GPT",
        });
    }
    mbr::set_sectors(&mut sector, number as usize - 1, sectors as u32);
    device.write_at(0, &sector)?;
    Ok(device.flush()?)
}

fn mbr_sector(device: &dyn BlockDevice) -> Result<Vec<u8>, PartitionError> {
    let mut sector = vec![0; mbr::SECTOR_BYTES];
    device.read_at(0, &mut sector)?;
    Ok(sector)
}

/// The first byte of the extended partition, if it lies behind `offset`.
fn extended_behind(sector: &[u8], offset: u64) -> Option<u64> {
    let entries = mbr::parse(sector).unwrap_or_default();
    let starts = entries.iter().filter(|entry| entry.is_extended());
    starts.map(|entry| entry.first * mbr::SECTOR_BYTES as u64).find(|start| *start > offset)
}
