//! The headers of an allocation group: AGF (space), AGI (inodes) and AGFL (blocks reserved for the space trees), in
//! sectors 1, 2 and 3 of the group.

mod structure;

use engine::Corruption;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::address::AgNumber;
use super::checksum;
use super::geometry::Geometry;
pub(crate) use structure::{
    agfl_capacity, agfl_entries, check_agf, check_agfl, check_agi, raw, verify_structure,
};

/// Sector of the AGF within its group.
pub const AGF_SECTOR: u32 = 1;
/// Sector of the AGI.
pub const AGI_SECTOR: u32 = 2;
/// Sector of the AGFL.
pub const AGFL_SECTOR: u32 = 3;
/// `agf_magicnum`: "XAGF".
pub const AGF_MAGIC: u32 = 0x5841_4746;
/// `agi_magicnum`: "XAGI".
pub const AGI_MAGIC: u32 = 0x5841_4749;
/// `agfl_magicnum`: "XAFL".
pub const AGFL_MAGIC: u32 = 0x5841_464c;
/// Version of AGF and AGI.
pub(crate) const AG_VERSION: u32 = 1;
/// Number of unlinked lists in an AGI.
pub const UNLINKED_BUCKETS: usize = 64;

/// The AGF on disk. Fields as in the format document, without `agf_`.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "names as in the format documentation")]
pub struct RawAgf {
    pub magicnum: U32,
    pub versionnum: U32,
    pub seqno: U32,
    pub length: U32,
    /// By block, by size, reverse map.
    pub roots: [U32; 3],
    /// See `roots`.
    pub levels: [U32; 3],
    pub flfirst: U32,
    pub fllast: U32,
    pub flcount: U32,
    pub freeblks: U32,
    pub longest: U32,
    pub btreeblks: U32,
    pub uuid: [u8; 16],
    pub rmap_blocks: U32,
    pub refcount_blocks: U32,
    pub refcount_root: U32,
    pub refcount_level: U32,
    pub spare64: [U64; 14],
    pub lsn: U64,
    pub crc: [u8; 4],
    pub spare2: U32,
}

/// The AGI on disk. Fields as in the format document, without `agi_`.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "names as in the format documentation")]
pub struct RawAgi {
    pub magicnum: U32,
    pub versionnum: U32,
    pub seqno: U32,
    pub length: U32,
    pub count: U32,
    pub root: U32,
    pub level: U32,
    pub freecount: U32,
    pub newino: U32,
    pub dirino: U32,
    pub unlinked: [U32; UNLINKED_BUCKETS],
    pub uuid: [u8; 16],
    pub crc: [u8; 4],
    pub pad32: U32,
    pub lsn: U64,
    pub free_root: U32,
    pub free_level: U32,
    pub iblocks: U32,
    pub fblocks: U32,
}

/// The AGFL's header; block numbers follow to the end of the sector. Version 4 has no header.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "names as in the format documentation")]
pub struct RawAgfl {
    pub magicnum: U32,
    pub seqno: U32,
    pub uuid: [u8; 16],
    pub lsn: U64,
    pub crc: [u8; 4],
}

const _: () = assert!(size_of::<RawAgf>() == 224);
const _: () = assert!(size_of::<RawAgi>() == 344);
const _: () = assert!(size_of::<RawAgfl>() == 36);
const _: () = assert!(std::mem::offset_of!(RawAgf, crc) == 216);
const _: () = assert!(std::mem::offset_of!(RawAgi, crc) == 312);
const _: () = assert!(std::mem::offset_of!(RawAgfl, crc) == 32);

/// Byte offset of each header's checksum in its sector, by sector.
pub(crate) const CRC_OFFSETS: [usize; 4] = [
    super::superblock::CRC_OFFSET,
    std::mem::offset_of!(RawAgf, crc),
    std::mem::offset_of!(RawAgi, crc),
    std::mem::offset_of!(RawAgfl, crc),
];
/// Names for messages, by sector.
pub(crate) const NAMES: [&str; 4] = ["superblock", "AGF", "AGI", "AGFL"];
/// Magic numbers, by sector.
const MAGICS: [u32; 4] = [super::superblock::MAGIC, AGF_MAGIC, AGI_MAGIC, AGFL_MAGIC];

/// Returns the headers in block `block` of their group: sector number and byte offset in the block.
pub(crate) fn headers_in(
    geometry: &Geometry,
    block: u32,
) -> impl Iterator<Item = (usize, usize)> + use<> {
    let size = geometry.sector_size();
    let per_block = (geometry.block_size() / size) as u32;
    let first = block * per_block;
    (first..(first + per_block).min(4)).map(move |s| (s as usize, (s - first) as usize * size))
}

/// Returns the block of the group that contains a header's sector, and the sector's byte offset in it.
pub const fn sector_place(geometry: &Geometry, sector: u32) -> (u32, usize) {
    let byte = (sector as usize) << geometry.sector_log;
    ((byte >> geometry.block_log) as u32, byte & (geometry.block_size() - 1))
}

/// Checks magic numbers, checksums and group numbers of the headers in block `block` of group `ag`. Superblocks other
/// than the first are copies, which are not read.
pub(crate) fn verify(
    geometry: &Geometry,
    ag: AgNumber,
    block: u32,
    data: &[u8],
) -> Result<(), Corruption> {
    for (sector, start) in headers_in(geometry, block) {
        let has_magic = sector != AGFL_SECTOR as usize || geometry.features.crc();
        if sector == 0 && ag.0 != 0 || !has_magic {
            continue;
        }
        let bytes = &data[start..start + geometry.sector_size()];
        verify_header(geometry, ag, sector, bytes).map_err(|c| c.in_group(ag.0.into()))?;
    }
    Ok(())
}

/// Checks magic number, checksum and group number of the header in `sector`, with contents `bytes`.
pub(crate) fn verify_header(
    geometry: &Geometry,
    ag: AgNumber,
    sector: usize,
    bytes: &[u8],
) -> Result<(), Corruption> {
    verify_magic(sector, bytes)?;
    if geometry.features.crc() {
        checksum::check(NAMES[sector], bytes, CRC_OFFSETS[sector])?;
    }
    verify_start(ag, sector, bytes)
}

fn verify_magic(sector: usize, bytes: &[u8]) -> Result<(), Corruption> {
    let (expected, found) = (MAGICS[sector], super::bytes::be32(bytes, 0));
    if found == expected {
        return Ok(());
    }
    Err(Corruption::new(NAMES[sector], "wrong magic number")
        .mismatch(format_args!("{expected:#010x}"), format_args!("{found:#010x}")))
}

/// Checks magic number and group number of the header in `sector`.
pub(crate) fn verify_start(ag: AgNumber, sector: usize, bytes: &[u8]) -> Result<(), Corruption> {
    verify_magic(sector, bytes)?;
    let seqno = match sector {
        0 => return Ok(()),
        1 | 2 => super::bytes::be32(bytes, 8),
        _ => super::bytes::be32(bytes, 4),
    };
    if seqno != ag.0 {
        let damage = Corruption::new(NAMES[sector], "it belongs to another group");
        return Err(damage.mismatch(ag, seqno));
    }
    Ok(())
}

/// Updates the checksums of the headers in block `block` of group `ag`.
pub(crate) fn seal(geometry: &Geometry, ag: AgNumber, block: u32, data: &mut [u8]) {
    if !geometry.features.crc() {
        return;
    }
    for (sector, start) in headers_in(geometry, block) {
        if sector == 0 && ag.0 != 0 {
            continue;
        }
        checksum::seal(&mut data[start..start + geometry.sector_size()], CRC_OFFSETS[sector]);
    }
}
