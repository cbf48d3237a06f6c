//! Finds the partitions of a disk image (MBR with logical partitions, and GPT), and detects the format of a device.
//!
//! Partitions have the numbers of Linux: table slots start at 1, logical partitions at 5. Tables are untrusted: every
//! partition that [`find`] returns is within the device, and chains are bounded.

mod change;
mod gpt;
mod gpt_edit;
mod logical;
mod mbr;
pub mod signature;
#[cfg(test)]
mod tests;

use std::io;
use vfs::hint::{Hint, Setting};

use crate::BlockDevice;
use logical::Extended;
use vfs::text;

pub use change::{disk_for, resize};
pub use signature::Signature;

/// Possible sizes of a disk's logical block, in bytes.
const BLOCK_BYTES: [u64; 2] = [512, 4096];

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Number, from 1.
    pub number: u32,
    /// Offset on the device in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Name, if the table has names; otherwise the type number.
    pub description: String,
}

/// The reason why a partition cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PartitionError {
    /// The device failed.
    #[error("cannot read the partition table: {0}")]
    Device(#[from] io::Error),
    /// The table is damaged.
    #[error("damaged {table} partition table: {problem}")]
    Damaged {
        /// Kind of table.
        table: &'static str,
        /// Description of the problem.
        problem: &'static str,
    },
    /// There is no table.
    #[error("the image has no partition table; {}", Hint::LeaveOut(Setting::PARTITION))]
    NoTable,
    /// The table has no such partition.
    #[error("partition {number} does not exist; {}", overview(partitions))]
    NoPartition {
        /// The requested number.
        number: u32,
        /// The existing partitions.
        partitions: Vec<Partition>,
    },
    /// The partition has no room to grow.
    #[error("partition {number} can grow to {room} bytes, but {wanted} are needed: {what}")]
    NoRoom {
        /// Its number.
        number: u32,
        /// Required bytes.
        wanted: u64,
        /// Available bytes from its start.
        room: u64,
        /// Description of the obstacle.
        what: String,
    },
    /// The entry of the partition cannot be changed.
    #[error("the size of partition {number} cannot be changed: {what}")]
    Unsupported {
        /// Its number.
        number: u32,
        /// Its kind.
        what: &'static str,
    },
    /// The partition extends past the end of the device.
    #[error(
        "partition {number} ends past the end of the image ({device_len} bytes); the image is \
         truncated"
    )]
    PastEnd {
        /// Its number.
        number: u32,
        /// Length of the device in bytes.
        device_len: u64,
    },
}

/// Describes partitions in one line.
pub fn overview(partitions: &[Partition]) -> String {
    if partitions.is_empty() {
        return "the table is empty".into();
    }
    let one = |p: &Partition| {
        let description = text::escaped(p.description.as_bytes()).to_string();
        format!("{} ({description}, {})", p.number, text::size(p.len))
    };
    format!("the table has: {}", partitions.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// Returns the partition with this number.
///
/// # Errors
/// If it does not exist, or is not within the device.
pub fn find(device: &dyn BlockDevice, number: u32) -> Result<Partition, PartitionError> {
    let partitions = read(device)?.ok_or(PartitionError::NoTable)?;
    let Some(found) = partitions.iter().find(|partition| partition.number == number) else {
        return Err(PartitionError::NoPartition { number, partitions });
    };
    let device_len = device.len();
    match found.offset.checked_add(found.len) {
        Some(end) if end <= device_len => Ok(found.clone()),
        _ => Err(PartitionError::PastEnd { number, device_len }),
    }
}

/// Returns all partitions by number, including those that extend past the end; `None` if there is no table.
///
/// # Errors
/// If the device fails or the table is damaged.
pub fn read(device: &dyn BlockDevice) -> Result<Option<Vec<Partition>>, PartitionError> {
    let Some(sector) = bytes(device, 0, mbr::SECTOR_BYTES as u64)? else { return Ok(None) };
    let Some(entries) = mbr::parse(&sector) else { return Ok(None) };
    if entries.iter().any(mbr::MbrEntry::is_protective) {
        return read_gpt(device).map(Some);
    }
    read_mbr(device, &entries).map(Some)
}

/// Reads bytes of the device; `None` if they are past its end.
fn bytes(device: &dyn BlockDevice, offset: u64, len: u64) -> io::Result<Option<Vec<u8>>> {
    if offset.checked_add(len).is_none_or(|end| end > device.len()) {
        return Ok(None);
    }
    let mut bytes = vec![0; len as usize];
    device.read_at(offset, &mut bytes)?;
    Ok(Some(bytes))
}

fn read_mbr(
    device: &dyn BlockDevice,
    entries: &[mbr::MbrEntry],
) -> Result<Vec<Partition>, PartitionError> {
    let mut partitions = Vec::new();
    let mut logical = Vec::new();
    for entry in entries {
        if entry.is_extended() {
            logical = Extended::read(device, *entry)?.partitions();
        } else {
            partitions.push(mbr_partition(entry.slot as u32 + 1, 0, entry));
        }
    }
    partitions.extend(logical);
    Ok(partitions)
}

fn mbr_partition(number: u32, base: u64, entry: &mbr::MbrEntry) -> Partition {
    let unit = mbr::SECTOR_BYTES as u64;
    Partition {
        number,
        // All three are 32-bit numbers on disk, so this does not overflow.
        offset: (base + entry.first) * unit,
        len: entry.count * unit,
        description: format!("type {:#04x}", entry.kind),
    }
}

/// Reads the table, or its copy at the end of the device if it is damaged.
fn read_gpt(device: &dyn BlockDevice) -> Result<Vec<Partition>, PartitionError> {
    let mut first_problem = None;
    for copy_at_end in [false, true] {
        for unit in BLOCK_BYTES {
            let offset = if copy_at_end { device.len().saturating_sub(unit) } else { unit };
            let header = bytes(device, offset, gpt::HEADER_BYTES as u64)?;
            let Some(header) = header.filter(|bytes| gpt::is_header(bytes)) else { continue };
            match read_gpt_at(device, &header, unit)? {
                Ok(partitions) => return Ok(partitions),
                Err(problem) => first_problem = first_problem.or(Some(problem)),
            }
        }
    }
    let problem = first_problem.unwrap_or("missing header");
    Err(PartitionError::Damaged { table: "GPT", problem })
}

/// Reads the partitions of one copy of the table, or returns the problem with it.
fn read_gpt_at(
    device: &dyn BlockDevice,
    header: &[u8],
    unit: u64,
) -> io::Result<Result<Vec<Partition>, &'static str>> {
    let header = match gpt::parse_header(header) {
        Ok(header) => header,
        Err(problem) => return Ok(Err(problem)),
    };
    let offset = header.entries_lba.saturating_mul(unit);
    let Some(table) = bytes(device, offset, header.table_bytes)? else {
        return Ok(Err("the entry table is past the end"));
    };
    Ok(gpt::parse_entries(&header, &table).map(|entries| {
        let entries = entries.into_iter().map(|entry| Partition {
            number: entry.slot as u32 + 1,
            offset: entry.first.saturating_mul(unit),
            len: entry.count.saturating_mul(unit),
            description: if entry.name.is_empty() { "no name".into() } else { entry.name },
        });
        entries.collect()
    }))
}
