//! The log's records: headers, and the unmount record, which marks the log clean.
//!
//! The log is a ring of 512-byte blocks. Each time it wraps around, its cycle number is incremented. The first word of
//! every block of a record is replaced by the cycle in which it was written. So the boundary between new and old blocks
//! can be found. The replaced words are stored in the record's headers.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::format::bytes::be32;

/// Size of a block of the log in bytes, independent of the sector size.
pub const BLOCK_SIZE: usize = 512;
/// `h_magicno`.
pub const RECORD_MAGIC: u32 = 0xfeed_babe;
/// `h_version` of current logs.
pub(crate) const RECORD_VERSION: u32 = 2;
/// `h_fmt`: items are little-endian.
pub(crate) const FORMAT_LITTLE_ENDIAN: u32 = 1;
/// Minimum `h_size` written by mkfs.xfs: size of the buffers in which records are collected, in bytes.
pub(crate) const BUFFER_SIZE: usize = 32 << 10;
/// Number of replaced words in a header block, one for each block of the record after the headers. There is one header
/// block for every [`BUFFER_SIZE`] of the buffer; the first word of all except the first header is the cycle.
pub(crate) const CYCLE_WORDS: usize = 64;
/// `oh_clientid` of operations of the log itself.
pub(crate) const CLIENT_LOG: u8 = 0xaa;
/// `oh_flags`: the log is clean.
pub(crate) const OP_UNMOUNT: u8 = 0x20;
/// Contents of the operation of an unmount record, in the machine's byte order.
pub(crate) const UNMOUNT_MAGIC: u16 = 0x556e;
/// `oh_tid` of that operation.
const UNMOUNT_TID: u32 = 0xb0c0_d0d0;

/// A position in the log (`xfs_lsn_t`): cycle and block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn {
    /// Number of the cycle, starting at 1.
    pub cycle: u32,
    /// The block in the log.
    pub block: u32,
}

/// The first implausible cycle: at one cycle of 1 GiB per second, it would take 34 years.
const CYCLE_ABSURD: u32 = 1 << 30;

impl Lsn {
    /// Returns whether a log can have reached this position.
    pub(crate) const fn is_plausible(self) -> bool {
        self.cycle < CYCLE_ABSURD
    }

    /// Converts to the form on disk.
    pub(crate) const fn to_raw(self) -> u64 {
        (self.cycle as u64) << 32 | self.block as u64
    }

    /// Converts from the form on disk.
    pub(crate) const fn from_raw(raw: u64) -> Self {
        Self { cycle: (raw >> 32) as u32, block: raw as u32 }
    }
}

/// The header of a record on disk. Fields as in the format document, without `h_`.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "names as in the format documentation")]
pub(crate) struct RawRecordHeader {
    pub magicno: U32,
    pub cycle: U32,
    pub version: U32,
    /// Length of the record after its headers, in bytes.
    pub len: U32,
    pub lsn: U64,
    pub tail_lsn: U64,
    /// Little-endian.
    pub crc: [u8; 4],
    pub prev_block: U32,
    pub num_logops: U32,
    pub cycle_data: [[u8; 4]; CYCLE_WORDS],
    pub fmt: U32,
    pub fs_uuid: [u8; 16],
    pub size: U32,
    pub pad: [u8; 188],
}

/// The header of an operation. Fields as in the format document, without `oh_`.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "names as in the format documentation")]
pub(crate) struct RawOpHeader {
    pub tid: U32,
    pub len: U32,
    pub clientid: u8,
    pub flags: u8,
    pub res2: [u8; 2],
}

const _: () = assert!(size_of::<RawRecordHeader>() == BLOCK_SIZE);
const _: () = assert!(std::mem::offset_of!(RawRecordHeader, crc) == 32);
const _: () = assert!(std::mem::offset_of!(RawRecordHeader, fmt) == 300);
const _: () = assert!(std::mem::offset_of!(RawRecordHeader, pad) == 324);
const _: () = assert!(size_of::<RawOpHeader>() == 12);

/// Parameters of an unmount record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unmount {
    /// Its position.
    pub lsn: Lsn,
    /// The block of the previous record; `None` for the first.
    pub previous: Option<u32>,
    /// The UUID of the superblock.
    pub uuid: [u8; 16],
    /// The length of records is a multiple of this, in bytes; values up to 512 mean 512 (`sb_logsunit`).
    pub unit: u32,
}

/// Returns an unmount record: header and one operation, without a checksum, as mkfs.xfs writes it.
pub(crate) fn unmount_record(unmount: &Unmount) -> Vec<u8> {
    let bytes = (unmount.unit as usize).next_multiple_of(BLOCK_SIZE).max(2 * BLOCK_SIZE);
    let buffer = bytes.max(BUFFER_SIZE);
    let cycle = unmount.lsn.cycle.to_be_bytes();
    let mut record = vec![0; bytes];
    // All replaced words except the operation's are zero, so the other headers contain only the cycle.
    for block in record.chunks_exact_mut(BLOCK_SIZE) {
        block[..4].copy_from_slice(&cycle);
    }
    let headers = buffer.div_ceil(BUFFER_SIZE) * BLOCK_SIZE;
    let op = RawOpHeader {
        tid: UNMOUNT_TID.into(),
        len: 8.into(),
        clientid: CLIENT_LOG,
        flags: OP_UNMOUNT,
        res2: [0; 2],
    };
    record[headers + 4..headers + 12].copy_from_slice(&op.as_bytes()[4..]);
    record[headers + 12..headers + 14].copy_from_slice(&UNMOUNT_MAGIC.to_le_bytes());

    let mut header = RawRecordHeader::new_zeroed();
    header.magicno = RECORD_MAGIC.into();
    header.cycle = unmount.lsn.cycle.into();
    header.version = RECORD_VERSION.into();
    header.len = ((bytes - headers) as u32).into();
    header.lsn = unmount.lsn.to_raw().into();
    header.tail_lsn = header.lsn;
    header.prev_block = unmount.previous.unwrap_or(u32::MAX).into();
    header.num_logops = 1.into();
    header.cycle_data[0] = UNMOUNT_TID.to_be_bytes();
    header.fmt = FORMAT_LITTLE_ENDIAN.into();
    header.fs_uuid = unmount.uuid;
    header.size = (buffer as u32).into();
    record[..BLOCK_SIZE].copy_from_slice(header.as_bytes());
    record
}

/// A record as described by its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsedRecord {
    /// Its position.
    pub lsn: Lsn,
    /// The tail of the log: the oldest position still needed.
    pub tail: Lsn,
    /// Number of header blocks.
    pub header_blocks: u32,
    /// Number of blocks after the headers.
    pub body_blocks: u32,
    /// Number of operations in it.
    pub operations: u32,
}

impl ParsedRecord {
    /// Parses a block as the first one of a record of a log with `log_blocks` blocks.
    pub(crate) fn parse(block: &[u8], log_blocks: u32) -> Option<Self> {
        let raw = RawRecordHeader::ref_from_prefix(block).ok()?.0;
        let version = raw.version.get();
        if raw.magicno.get() != RECORD_MAGIC || !(1..=RECORD_VERSION).contains(&version) {
            return None;
        }
        // Version 1 has one header block, and does not store the size of its buffers.
        let size = if version == 1 { 0 } else { raw.size.get() as usize };
        let header_blocks = size.div_ceil(BUFFER_SIZE).max(1) as u32;
        let body_blocks = raw.len.get().div_ceil(BLOCK_SIZE as u32);
        let fits = header_blocks.checked_add(body_blocks).is_some_and(|sum| sum <= log_blocks);
        fits.then(|| Self {
            lsn: Lsn::from_raw(raw.lsn.get()),
            tail: Lsn::from_raw(raw.tail_lsn.get()),
            header_blocks,
            body_blocks,
            operations: raw.num_logops.get(),
        })
    }

    /// Returns the number of its blocks.
    pub const fn blocks(&self) -> u32 {
        self.header_blocks + self.body_blocks
    }

    /// Returns whether the first block after the headers starts with the operation of an unmount record.
    pub(crate) fn is_unmount(&self, first_body_block: &[u8]) -> bool {
        let op = RawOpHeader::ref_from_prefix(first_body_block).ok();
        self.operations == 1 && op.is_some_and(|(op, _)| op.flags & OP_UNMOUNT != 0)
    }
}

/// Returns the cycle in which a block of the log was written: its first word, or the second if the first is the magic
/// number of a header.
pub(crate) fn cycle_of(block: &[u8]) -> u32 {
    match be32(block, 0) {
        RECORD_MAGIC => be32(block, 4),
        cycle => cycle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(unit: u32) -> Vec<u8> {
        let lsn = Lsn { cycle: 3, block: 40 };
        unmount_record(&Unmount { lsn, previous: Some(7), uuid: [9; 16], unit })
    }

    #[test]
    fn a_clean_record_is_recognised() {
        for unit in [1, 512, 4096, 32 << 10, 64 << 10] {
            let bytes = record(unit);
            let parsed = ParsedRecord::parse(&bytes, 1 << 20).unwrap();
            assert_eq!(parsed.lsn, Lsn { cycle: 3, block: 40 });
            assert_eq!(parsed.blocks() as usize * BLOCK_SIZE, bytes.len(), "unit {unit}");
            let body = parsed.header_blocks as usize * BLOCK_SIZE;
            assert!(parsed.is_unmount(&bytes[body..]));
            assert!(bytes.chunks_exact(BLOCK_SIZE).all(|block| cycle_of(block) == 3));
        }
    }

    #[test]
    fn a_record_longer_than_its_log_is_invalid() {
        let mut bytes = record(1);
        assert_eq!(ParsedRecord::parse(&bytes, 1), None);
        bytes[12..16].fill(0xff);
        assert_eq!(ParsedRecord::parse(&bytes, 1 << 20), None);
        assert_eq!(ParsedRecord::parse(&bytes[..100], 1 << 20), None);
    }
}
