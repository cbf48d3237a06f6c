//! GUID partition tables (UEFI specification, chapter 5). No I/O.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Size of the header in bytes.
pub(super) const HEADER_BYTES: usize = size_of::<RawHeader>();
/// Maximum size of the table of entries, in bytes; the usual size is 16 KiB.
pub(super) const TABLE_BYTES_MAX: u64 = 1 << 20;

const ENTRY_BYTES: usize = size_of::<RawEntry>();

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    signature: [u8; 8],
    revision: U32,
    header_size: U32,
    header_crc: U32,
    reserved: U32,
    my_lba: U64,
    alternate_lba: U64,
    first_usable_lba: U64,
    last_usable_lba: U64,
    disk_guid: [u8; 16],
    entries_lba: U64,
    entry_count: U32,
    entry_size: U32,
    entries_crc: U32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    type_guid: [u8; 16],
    guid: [u8; 16],
    first_lba: U64,
    last_lba: U64,
    attributes: U64,
    name: [U16; 36],
}

const _: () = assert!(HEADER_BYTES == 92);
const _: () = assert!(ENTRY_BYTES == 128);

/// Offset of `header_crc`, which is zero when the checksum is computed.
const CRC_OFFSET: usize = 16;

/// A header with a valid checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GptHeader {
    pub(super) entries_lba: u64,
    /// Size of the table of entries in bytes, at most [`TABLE_BYTES_MAX`].
    pub(super) table_bytes: u64,
    entry_size: usize,
    entries_crc: u32,
}

/// A used entry of the table, in logical blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GptEntry {
    /// Position in the table, from 0.
    pub(super) slot: usize,
    pub(super) first: u64,
    pub(super) count: u64,
    pub(super) name: String,
}

/// Checks whether the bytes start with the signature of a header.
pub(super) fn is_header(bytes: &[u8]) -> bool {
    bytes.starts_with(b"EFI PART")
}

/// Parses a header of at least `HEADER_BYTES` bytes.
///
/// # Errors
/// A description of the problem.
pub(super) fn parse_header(bytes: &[u8]) -> Result<GptHeader, &'static str> {
    let (raw, _) = RawHeader::ref_from_prefix(bytes).map_err(|_| "truncated header")?;
    if !is_header(bytes) {
        return Err("missing header signature");
    }
    if raw.header_size.get() as usize != HEADER_BYTES {
        return Err("invalid header size");
    }
    let mut sum = crc32fast::Hasher::new();
    sum.update(&bytes[..CRC_OFFSET]);
    sum.update(&[0; 4]);
    sum.update(&bytes[CRC_OFFSET + 4..HEADER_BYTES]);
    if sum.finalize() != raw.header_crc.get() {
        return Err("wrong header checksum");
    }
    let entry_size = raw.entry_size.get() as usize;
    let table_bytes = u64::from(raw.entry_count.get()) * u64::from(raw.entry_size.get());
    if entry_size < ENTRY_BYTES || table_bytes > TABLE_BYTES_MAX {
        return Err("invalid size of the entry table");
    }
    let (entries_lba, entries_crc) = (raw.entries_lba.get(), raw.entries_crc.get());
    Ok(GptHeader { entries_lba, table_bytes, entry_size, entries_crc })
}

/// Parses the table of entries, which must have `header.table_bytes` bytes.
///
/// # Errors
/// A description of the problem.
pub(super) fn parse_entries(
    header: &GptHeader,
    table: &[u8],
) -> Result<Vec<GptEntry>, &'static str> {
    if crc32fast::hash(table) != header.entries_crc {
        return Err("wrong checksum of the entry table");
    }
    let mut entries = Vec::new();
    for (slot, bytes) in table.chunks_exact(header.entry_size).enumerate() {
        let Ok((raw, _)) = RawEntry::ref_from_prefix(bytes) else { break };
        if raw.type_guid == [0; 16] {
            continue;
        }
        let (first, last) = (raw.first_lba.get(), raw.last_lba.get());
        let count = last.checked_sub(first).and_then(|count| count.checked_add(1));
        let count = count.ok_or("a partition ends before it starts")?;
        let name = raw.name.iter().map(|unit| unit.get()).take_while(|&unit| unit != 0);
        let name = char::decode_utf16(name).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER));
        entries.push(GptEntry { slot, first, count, name: name.collect() });
    }
    Ok(entries)
}
