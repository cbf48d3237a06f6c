//! Logical partitions: reads the chain of extended boot records, and resizes a partition in it.
//!
//! Each record counts the start of its partition from itself, and that of the next record from the start of the
//! extended partition. The entry that leads to a record covers it and its partition, and the extended partition covers
//! all of them. Both grow before the partition does, and the entry shrinks after it, so the partition is covered at any
//! moment. The extended partition never shrinks.

use crate::BlockDevice;

use super::{Partition, PartitionError, bytes, mbr, mbr_partition};

/// Maximum number of logical partitions.
const LOGICAL_MAX: u32 = 256;
/// Number of the first logical partition.
const FIRST_NUMBER: u32 = 5;
const UNIT: u64 = mbr::SECTOR_BYTES as u64;

/// An extended partition with its records.
pub(super) struct Extended {
    /// Its entry in the first sector.
    entry: mbr::MbrEntry,
    records: Vec<BootRecord>,
}

/// An extended boot record.
struct BootRecord {
    /// Its sector on the device.
    base: u64,
    entries: Vec<mbr::MbrEntry>,
}

impl BootRecord {
    /// Returns the entry that leads to the next record.
    fn link(&self) -> Option<&mbr::MbrEntry> {
        self.entries.iter().find(|entry| entry.is_extended())
    }

    fn partitions(&self) -> impl Iterator<Item = &mbr::MbrEntry> {
        self.entries.iter().filter(|entry| !entry.is_extended())
    }
}

impl Extended {
    /// Reads the chain of an extended partition.
    ///
    /// # Errors
    /// If the device fails, or the chain is broken or endless.
    pub(super) fn read(
        device: &dyn BlockDevice,
        entry: mbr::MbrEntry,
    ) -> Result<Self, PartitionError> {
        let damaged = |problem| PartitionError::Damaged { table: "MBR", problem };
        let mut records = Vec::new();
        let mut base = entry.first;
        for step in 0..LOGICAL_MAX {
            let sector = bytes(device, base * UNIT, UNIT)?;
            let sector = sector.ok_or(damaged("an extended boot record is past the end"))?;
            let Some(entries) = mbr::parse(&sector) else {
                // An extended partition that never had logical partitions has no record.
                let is_blank = step == 0;
                return match is_blank {
                    true => Ok(Self { entry, records }),
                    false => Err(damaged("the chain is broken")),
                };
            };
            let record = BootRecord { base, entries };
            let next = record.link().map(|link| entry.first + link.first);
            records.push(record);
            let Some(next) = next else { return Ok(Self { entry, records }) };
            base = next;
        }
        Err(damaged("the chain of logical partitions is endless"))
    }

    /// Returns all logical partitions with their numbers.
    pub(super) fn partitions(&self) -> Vec<Partition> {
        let all = self.all().zip(FIRST_NUMBER..);
        all.map(|((at, entry), number)| mbr_partition(number, self.records[at].base, entry))
            .collect()
    }

    /// Returns all partitions in numerical order, with the index of their record.
    fn all(&self) -> impl Iterator<Item = (usize, &mbr::MbrEntry)> {
        let records = self.records.iter().enumerate();
        records.flat_map(|(at, record)| record.partitions().map(move |entry| (at, entry)))
    }

    /// Returns the offsets of the records, which no partition may overlap.
    pub(super) fn record_offsets(&self) -> impl Iterator<Item = u64> {
        self.records.iter().map(|record| record.base * UNIT)
    }

    /// Changes the sector count of a logical partition. The extended partition grows if necessary, and never shrinks.
    /// The change is durable on return.
    ///
    /// # Errors
    /// If there is no such partition, or the device fails.
    pub(super) fn resize(
        &self,
        device: &dyn BlockDevice,
        number: u32,
        sectors: u32,
    ) -> Result<(), PartitionError> {
        let found = number.checked_sub(FIRST_NUMBER).and_then(|nth| self.all().nth(nth as usize));
        let Some((at, entry)) = found else {
            return Err(PartitionError::NoPartition { number, partitions: self.partitions() });
        };
        let record = &self.records[at];
        let end = entry.first + u64::from(sectors);
        self.cover(device, number, record.base + end)?;
        let link = self.link_to(at, entry, end, number)?;
        let own = (record.base, entry.slot, sectors);
        let mut writes: Vec<_> = link.into_iter().chain([own]).collect();
        if u64::from(sectors) < entry.count {
            writes.reverse();
        }
        for (sector, slot, sectors) in writes {
            set_sectors(device, sector, slot, sectors)?;
        }
        Ok(())
    }

    /// Extends the extended partition to a sector of the device.
    fn cover(&self, device: &dyn BlockDevice, number: u32, end: u64) -> Result<(), PartitionError> {
        let needed = end.saturating_sub(self.entry.first);
        if needed <= self.entry.count {
            return Ok(());
        }
        set_sectors(device, 0, self.entry.slot, addressable(number, needed)?)
    }

    /// Returns the new entry that leads to a record whose partition will end at sector `end`, counted from the record.
    /// Returns `None` if there is no such entry, or if it covers more than the record needs: its creator intended that.
    fn link_to(
        &self,
        at: usize,
        entry: &mbr::MbrEntry,
        end: u64,
        number: u32,
    ) -> Result<Option<(u64, usize, u32)>, PartitionError> {
        let before = at.checked_sub(1).map(|before| &self.records[before]);
        let Some((before, link)) = before.and_then(|record| Some((record, record.link()?))) else {
            return Ok(None);
        };
        let is_tight = link.count == entry.first + entry.count;
        if link.count >= end && !is_tight {
            return Ok(None);
        }
        Ok(Some((before.base, link.slot, addressable(number, end)?)))
    }
}

fn addressable(number: u32, sectors: u64) -> Result<u32, PartitionError> {
    let what = "too large for an MBR, which ends at 2 TiB; use a disk with a GPT";
    u32::try_from(sectors).map_err(|_| PartitionError::Unsupported { number, what })
}

/// Changes one entry of the record in a sector.
fn set_sectors(
    device: &dyn BlockDevice,
    sector: u64,
    slot: usize,
    sectors: u32,
) -> Result<(), PartitionError> {
    let mut record = vec![0; mbr::SECTOR_BYTES];
    device.read_at(sector * UNIT, &mut record)?;
    mbr::set_sectors(&mut record, slot, sectors);
    device.write_at(sector * UNIT, &record)?;
    Ok(device.flush()?)
}
