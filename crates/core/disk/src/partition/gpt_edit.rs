//! Edits a GUID partition table: both headers, their checksums and their locations.

use crate::BlockDevice;

use super::{BLOCK_BYTES, PartitionError, bytes, gpt, mbr};

/// Offsets of header fields.
mod field {
    pub(super) const HEADER_CRC: usize = 16;
    pub(super) const MY_LBA: usize = 24;
    pub(super) const ALTERNATE_LBA: usize = 32;
    pub(super) const LAST_USABLE_LBA: usize = 48;
    pub(super) const ENTRIES_LBA: usize = 72;
    pub(super) const ENTRY_SIZE: usize = 84;
    pub(super) const ENTRIES_CRC: usize = 88;
    /// In an entry.
    pub(super) const FIRST_LBA: usize = 32;
    /// In an entry.
    pub(super) const LAST_LBA: usize = 40;
}

/// Block of the primary header.
const PRIMARY_LBA: u64 = 1;

/// A table: the header of a valid copy, and its entries.
pub(super) struct GptTable {
    unit: u64,
    header: Vec<u8>,
    entries: Vec<u8>,
    /// Block of the primary copy's entries.
    primary_entries: u64,
    /// The primary copy was read.
    is_primary: bool,
}

impl GptTable {
    /// Reads the table of a disk; `None` if it has no GPT.
    ///
    /// # Errors
    /// If the device fails, or no copy is valid.
    pub(super) fn read(device: &dyn BlockDevice) -> Result<Option<Self>, PartitionError> {
        let Some(sector) = bytes(device, 0, mbr::SECTOR_BYTES as u64)? else { return Ok(None) };
        let entries = mbr::parse(&sector).unwrap_or_default();
        if !entries.iter().any(mbr::MbrEntry::is_protective) {
            return Ok(None);
        }
        for copy_at_end in [false, true] {
            for unit in BLOCK_BYTES {
                let offset = if copy_at_end { device.len().saturating_sub(unit) } else { unit };
                if let Some(table) = Self::read_at(device, offset, unit)? {
                    return Ok(Some(table));
                }
            }
        }
        Err(PartitionError::Damaged { table: "GPT", problem: "neither copy is valid" })
    }

    fn read_at(
        device: &dyn BlockDevice,
        offset: u64,
        unit: u64,
    ) -> Result<Option<Self>, PartitionError> {
        let Some(raw) = bytes(device, offset, gpt::HEADER_BYTES as u64)? else { return Ok(None) };
        let Ok(header) = gpt::parse_header(&raw) else { return Ok(None) };
        let at = header.entries_lba.saturating_mul(unit);
        let Some(entries) = bytes(device, at, header.table_bytes)? else { return Ok(None) };
        if gpt::parse_entries(&header, &entries).is_err() {
            return Ok(None);
        }
        let is_primary = u64_at(&raw, field::MY_LBA) == PRIMARY_LBA;
        // If the primary copy is lost, its entries go to the usual block.
        let primary_entries = if is_primary { header.entries_lba } else { PRIMARY_LBA + 1 };
        Ok(Some(Self { unit, header: raw, entries, primary_entries, is_primary }))
    }

    /// Returns the number of blocks of the entries.
    fn entries_blocks(&self) -> u64 {
        (self.entries.len() as u64).div_ceil(self.unit)
    }

    /// Returns the disk size in bytes that allows a partition to end at byte `end`.
    pub(super) fn disk_for(&self, disk_len: u64, end: u64) -> u64 {
        let behind = (self.entries_blocks() + 1) * self.unit;
        let needed = end.div_ceil(self.unit) * self.unit + behind;
        disk_len.max(needed)
    }

    /// Changes the length of a partition.
    pub(super) fn set_len(&mut self, number: u32, bytes: u64) -> Result<(), PartitionError> {
        let size = u32_at(&self.header, field::ENTRY_SIZE) as usize;
        let at = (number as usize - 1) * size;
        let damaged = PartitionError::Damaged { table: "GPT", problem: "truncated entry" };
        let entry = self.entries.get_mut(at..at + size).ok_or(damaged)?;
        let last = u64_at(entry, field::FIRST_LBA) + bytes.div_ceil(self.unit) - 1;
        put_u64(entry, field::LAST_LBA, last);
        Ok(())
    }

    /// Writes both copies, the second one at the end of the device.
    ///
    /// # Errors
    /// If the device fails, or a partition overlaps the place of the second copy.
    pub(super) fn write(mut self, device: &dyn BlockDevice) -> Result<(), PartitionError> {
        let last = device.len() / self.unit - 1;
        let at_end = last - self.entries_blocks();
        let size = u32_at(&self.header, field::ENTRY_SIZE) as usize;
        let ends = self.entries.chunks_exact(size).map(|entry| u64_at(entry, field::LAST_LBA));
        if ends.max().is_some_and(|end| end >= at_end) {
            let problem = "a partition overlaps the backup table at the end of the disk";
            return Err(PartitionError::Damaged { table: "GPT", problem });
        }
        put_u64(&mut self.header, field::LAST_USABLE_LBA, at_end - 1);
        let sum = crc32fast::hash(&self.entries);
        put_u32(&mut self.header, field::ENTRIES_CRC, sum);
        let second = self.header_at(last, PRIMARY_LBA, at_end);
        let first = self.header_at(PRIMARY_LBA, last, self.primary_entries);
        let mut copies = [(second, last, at_end), (first, PRIMARY_LBA, self.primary_entries)];
        // The copy that was read is written last, because it may be the only valid one.
        if !self.is_primary {
            copies.reverse();
        }
        for (header, lba, entries) in copies {
            device.write_at(entries * self.unit, &self.entries)?;
            device.write_at(lba * self.unit, &header)?;
            device.flush()?;
        }
        let mut sector = vec![0; mbr::SECTOR_BYTES];
        device.read_at(0, &mut sector)?;
        let before = sector.clone();
        mbr::protect(&mut sector, last);
        if sector != before {
            device.write_at(0, &sector)?;
            device.flush()?;
        }
        Ok(())
    }

    /// Returns the header of a copy.
    fn header_at(&self, lba: u64, other: u64, entries: u64) -> Vec<u8> {
        let mut header = self.header.clone();
        put_u64(&mut header, field::MY_LBA, lba);
        put_u64(&mut header, field::ALTERNATE_LBA, other);
        put_u64(&mut header, field::ENTRIES_LBA, entries);
        put_u32(&mut header, field::HEADER_CRC, 0);
        let sum = crc32fast::hash(&header);
        put_u32(&mut header, field::HEADER_CRC, sum);
        header
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u64_at(&[&bytes[at..at + 4], &[0; 4]].concat(), 0) as u32
}

fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}
