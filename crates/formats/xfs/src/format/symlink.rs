//! Targets of symbolic links that do not fit into the inode. In version 5 each run of blocks starts with a header; in
//! version 4 the blocks contain only the target.

use engine::Corruption;
use vfs::Ino;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::address::Block;
use super::checksum;
use super::geometry::Geometry;

const STRUCTURE: &str = "symlink block";

/// Maximum length of a target in bytes (`XFS_SYMLINK_MAXLEN`).
pub(crate) const TARGET_LEN_MAX: usize = 1024;
/// `sl_magic`: "XSLM".
pub(crate) const MAGIC: u32 = 0x5853_4c4d;
/// Size of the header in bytes.
pub(crate) const HEADER_SIZE: usize = size_of::<RawHeader>();
/// Byte offset of the checksum.
pub(crate) const CRC_OFFSET: usize = std::mem::offset_of!(RawHeader, crc);

/// The header on disk (`xfs_dsymlink_hdr`). Fields as in the format document, without `sl_`.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "names as in the format documentation")]
pub(crate) struct RawHeader {
    pub magic: U32,
    /// Offset in the target of this run.
    pub offset: U32,
    /// Number of bytes of the target in this run.
    pub bytes: U32,
    pub crc: [u8; 4],
    pub uuid: [u8; 16],
    pub owner: U64,
    pub blkno: U64,
    pub lsn: U64,
}

const _: () = assert!(size_of::<RawHeader>() == 56);
const _: () = assert!(CRC_OFFSET == 12);

/// Returns the size of the header in this file system: 0 in version 4.
pub(crate) const fn header_size(geometry: &Geometry) -> usize {
    if geometry.features.crc() { HEADER_SIZE } else { 0 }
}

/// Returns the number of blocks for a target of `len` bytes, by the format's own rule: as if each block had a header.
pub(crate) const fn blocks_for(geometry: &Geometry, len: usize) -> u32 {
    len.div_ceil(geometry.block_size() - header_size(geometry)) as u32
}

/// Returns the header of the run at `block`, for bytes `offset..offset + bytes` of the target.
pub(crate) fn header(
    geometry: &Geometry,
    owner: Ino,
    block: Block,
    offset: u32,
    bytes: u32,
) -> RawHeader {
    RawHeader {
        magic: U32::new(MAGIC),
        offset: U32::new(offset),
        bytes: U32::new(bytes),
        crc: [0; 4],
        uuid: geometry.meta_uuid,
        owner: U64::new(owner.0),
        blkno: U64::new(geometry.daddr(block)),
        lsn: U64::ZERO,
    }
}

/// Checks a run of blocks with a header that was just read. Returns the range of the target in it.
pub(crate) fn verify(
    geometry: &Geometry,
    owner: Ino,
    block: Block,
    run: &[u8],
) -> Result<std::ops::Range<u32>, Corruption> {
    checked_header(run).map_err(|c| c.of_inode(owner.0))?;
    checksum::check(STRUCTURE, run, CRC_OFFSET).map_err(|c| c.of_inode(owner.0))?;
    verify_structure(geometry, owner, block, run)
}

/// Like [`verify`], without the checksum, before a run is sealed.
pub(crate) fn verify_structure(
    geometry: &Geometry,
    owner: Ino,
    block: Block,
    run: &[u8],
) -> Result<std::ops::Range<u32>, Corruption> {
    let fault = |problem| Corruption::new(STRUCTURE, problem).of_inode(owner.0);
    let (header, rest) = checked_header(run).map_err(|c| c.of_inode(owner.0))?;
    if header.uuid != geometry.meta_uuid {
        return Err(fault("it belongs to another file system"));
    }
    if header.owner.get() != owner.0 {
        return Err(fault("it belongs to another inode").mismatch(owner, header.owner.get()));
    }
    let daddr = geometry.daddr(block);
    if header.blkno.get() != daddr {
        return Err(fault("it contains another location").mismatch(daddr, header.blkno.get()));
    }
    let (offset, bytes) = (header.offset.get(), header.bytes.get());
    let end = offset.saturating_add(bytes);
    if bytes as usize > rest.len() || end as usize > TARGET_LEN_MAX {
        return Err(fault("invalid length").mismatch(rest.len().min(TARGET_LEN_MAX), end));
    }
    Ok(offset..end)
}

/// Returns the header, with its magic number checked, and the bytes after it.
fn checked_header(run: &[u8]) -> Result<(&RawHeader, &[u8]), Corruption> {
    let fault = |problem| Corruption::new(STRUCTURE, problem);
    let (header, rest) = RawHeader::ref_from_prefix(run).map_err(|_| fault("it is truncated"))?;
    if header.magic.get() != MAGIC {
        let found = format_args!("{:#010x}", header.magic.get()).to_string();
        return Err(fault("wrong magic number").mismatch(format_args!("{MAGIC:#010x}"), found));
    }
    Ok((header, rest))
}
