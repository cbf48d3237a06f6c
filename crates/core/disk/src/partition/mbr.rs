//! Master boot records and extended boot records. No I/O.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Sector size in bytes; the unit of all addresses in a boot record.
pub(super) const SECTOR_BYTES: usize = 512;
/// `0x55 0xaa` at the end of the sector.
const SIGNATURE: u16 = 0xaa55;
/// Type of the protective entry, which marks a disk with a GPT.
const PROTECTIVE: u8 = 0xee;
/// Types of extended partitions: CHS, LBA and Linux's own.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRecord {
    code: [u8; 446],
    entries: [RawEntry; 4],
    signature: U16,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawEntry {
    status: u8,
    chs_first: [u8; 3],
    kind: u8,
    chs_last: [u8; 3],
    lba_first: U32,
    sectors: U32,
}

const _: () = assert!(size_of::<RawRecord>() == SECTOR_BYTES);
const _: () = assert!(size_of::<RawEntry>() == 16);

/// A used entry of a boot record, in sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MbrEntry {
    /// Position in the record, 0 to 3.
    pub(super) slot: usize,
    pub(super) kind: u8,
    /// First sector. The kind of record determines the origin.
    pub(super) first: u64,
    pub(super) count: u64,
}

impl MbrEntry {
    pub(super) fn is_protective(&self) -> bool {
        self.kind == PROTECTIVE
    }

    pub(super) fn is_extended(&self) -> bool {
        EXTENDED.contains(&self.kind)
    }
}

/// Parses the used entries of a boot record; `None` if the sector is not one. The first sector of a FAT or NTFS file
/// system has the same signature, but no valid table.
pub(super) fn parse(sector: &[u8]) -> Option<Vec<MbrEntry>> {
    let (raw, _) = RawRecord::ref_from_prefix(sector).ok()?;
    let is_sensible = raw.entries.iter().all(|entry| matches!(entry.status, 0 | 0x80));
    if raw.signature.get() != SIGNATURE || !is_sensible {
        return None;
    }
    let entries = raw.entries.iter().enumerate().map(|(slot, entry)| MbrEntry {
        slot,
        kind: entry.kind,
        first: entry.lba_first.get().into(),
        count: entry.sectors.get().into(),
    });
    Some(entries.filter(|entry| entry.kind != 0 && entry.count != 0).collect())
}

/// Offset of the entries in a record.
const ENTRIES_OFFSET: usize = std::mem::offset_of!(RawRecord, entries);
/// Largest cylinder, head and sector that can be encoded. Sectors past it are addressed by number alone.
const CHS_MAX: [u8; 3] = [0xfe, 0xff, 0xff];

/// Sets the sector count of an entry.
pub(super) fn set_sectors(sector: &mut [u8], slot: usize, sectors: u32) {
    let at = ENTRIES_OFFSET + slot * size_of::<RawEntry>();
    let chs_last = at + std::mem::offset_of!(RawEntry, chs_last);
    sector[chs_last..chs_last + 3].copy_from_slice(&CHS_MAX);
    let count = at + std::mem::offset_of!(RawEntry, sectors);
    sector[count..count + 4].copy_from_slice(&sectors.to_le_bytes());
}

/// Extends the protective entry to the last block of the disk, as far as 32 bits allow.
pub(super) fn protect(sector: &mut [u8], last: u64) {
    let entries = parse(sector).unwrap_or_default();
    // Hybrid tables are left unchanged.
    if let [entry] = &entries[..] {
        let sectors = u32::try_from(last).unwrap_or(u32::MAX);
        if entry.is_protective() && u64::from(sectors) > entry.count {
            set_sectors(sector, entry.slot, sectors);
        }
    }
}
