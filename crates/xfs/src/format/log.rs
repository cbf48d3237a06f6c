//! The log's records: headers, and the record that says the log was left clean.
//!
//! The log is a ring of 512-byte blocks. Each time it starts over, its cycle number grows by one, and
//! the first word of every block of a record is replaced by the cycle it was written in, so that the
//! place where new ends and old begins can be found. Words so replaced are kept in the record's
//! header.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a block of the log, whatever the sector size.
pub const BLOCK_SIZE: usize = 512;
/// `h_magicno`.
pub const RECORD_MAGIC: u32 = 0xfeed_babe;
/// `h_version` of the logs in use today.
pub const RECORD_VERSION: u32 = 2;
/// `h_fmt`: items are little-endian.
pub const FORMAT_LITTLE_ENDIAN: u32 = 1;
/// `h_size` that mkfs.xfs writes at least: size of the buffers that records are gathered in, in bytes.
pub const BUFFER_SIZE: usize = 32 << 10;
/// Words that a header block keeps, one for each block of the record behind the headers. There is one
/// header block for every [`BUFFER_SIZE`] of the buffer; the first word of the others is the cycle.
pub const CYCLE_WORDS: usize = 64;
/// `oh_clientid` of operations that belong to the log itself.
pub const CLIENT_LOG: u8 = 0xaa;
/// `oh_flags`: the log was left clean.
pub const OP_UNMOUNT: u8 = 0x20;
/// What the operation that marks a clean log contains, in the machine's order.
pub const UNMOUNT_MAGIC: u16 = 0x556e;
/// `oh_tid` of that operation.
const UNMOUNT_TID: u32 = 0xb0c0_d0d0;

/// A place in the log (`xfs_lsn_t`): cycle and block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn {
    /// How often the log has started over, from 1 on.
    pub cycle: u32,
    /// The block in the log.
    pub block: u32,
}

impl Lsn {
    /// As it is on disk.
    pub const fn to_raw(self) -> u64 {
        (self.cycle as u64) << 32 | self.block as u64
    }

    /// From what is on disk.
    pub const fn from_raw(raw: u64) -> Self {
        Self { cycle: (raw >> 32) as u32, block: raw as u32 }
    }
}

/// The header of a record as it is on disk. Fields as in the format document, without `h_`.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are the format document's")]
pub struct RawRecordHeader {
    pub magicno: U32,
    pub cycle: U32,
    pub version: U32,
    /// Bytes of the record behind its headers.
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
#[allow(missing_docs, reason = "the names are the format document's")]
pub struct RawOpHeader {
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

/// What a record that marks a clean log says.
#[derive(Clone, Copy, Debug)]
pub struct Unmount {
    /// Where it is.
    pub lsn: Lsn,
    /// The block of the record before; `None` for the first.
    pub previous: Option<u32>,
    /// The uuid that the superblock has.
    pub uuid: [u8; 16],
    /// Records are multiples of this long, in bytes; up to 512 means 512 (`sb_logsunit`).
    pub unit: u32,
}

/// The record that marks a clean log, ready to be written: header and one operation, without a
/// checksum, as mkfs.xfs writes it.
pub fn unmount_record(unmount: &Unmount) -> Vec<u8> {
    let bytes = (unmount.unit as usize).next_multiple_of(BLOCK_SIZE).max(2 * BLOCK_SIZE);
    let buffer = bytes.max(BUFFER_SIZE);
    let cycle = unmount.lsn.cycle.to_be_bytes();
    let mut record = vec![0; bytes];
    // All kept words but the operation's are zero, so that the other headers have nothing but the cycle.
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
