//! Headers of directory blocks.

use std::mem::offset_of;

use engine::Corruption;
use vfs::Ino;
use zerocopy::big_endian::{U16, U32, U64};

use super::{DirBlockKind, DirLayout, magic};
use crate::format::address::Block;
use crate::format::bytes::{be16, be32, be64, put16, put32, put64};
use crate::format::checksum;
use crate::format::geometry::Geometry;

/// `xfs_dir3_blk_hdr`: the header of data and free-space blocks. In version 4 there is only the magic number.
#[repr(C)]
struct DirHeader {
    magic: U32,
    crc: U32,
    blkno: U64,
    lsn: U64,
    uuid: [u8; 16],
    owner: U64,
}

/// `xfs_da3_blkinfo`: the header of leaves and nodes. In version 4 it ends after the padding of the magic number.
#[repr(C)]
struct DaHeader {
    forw: U32,
    back: U32,
    magic: U16,
    pad: U16,
    crc: U32,
    blkno: U64,
    lsn: U64,
    uuid: [u8; 16],
    owner: U64,
}

const _: () = assert!(size_of::<DirHeader>() == 48 && size_of::<DaHeader>() == 56);

pub(super) const DIR_CRC: usize = offset_of!(DirHeader, crc);
pub(super) const DA_CRC: usize = offset_of!(DaHeader, crc);
pub(super) const DA_FORW: usize = offset_of!(DaHeader, forw);
pub(super) const DA_BACK: usize = offset_of!(DaHeader, back);
pub(super) const DA_MAGIC: usize = offset_of!(DaHeader, magic);
const DA_PAD: usize = offset_of!(DaHeader, pad);
/// Byte offset of the padding at the end of all headers of version 5, in 4 bytes.
const END_PAD: usize = 60;
/// Size of the common header of data and free-space blocks of version 5.
pub(super) const DIR_END: usize = size_of::<DirHeader>();
/// Size of the common header of leaves and nodes of version 5.
pub(super) const DA_END: usize = size_of::<DaHeader>();
/// Size of the common header of leaves and nodes of version 4.
pub(super) const DA_END_V4: usize = offset_of!(DaHeader, crc);

/// Expected owner and location of a block, and the depth of the check.
pub(super) struct ExpectedBlock<'g> {
    pub(super) geometry: &'g Geometry,
    pub(super) ino: Ino,
    pub(super) block: Block,
    pub(super) depth: Depth,
}

/// The depth of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Including the checksum, for a block that was just read.
    Sealed,
    /// Without the checksum, for a block that is about to be sealed.
    Structure,
}

/// Checks the self-describing fields of version 5 blocks. Both headers have them in the same order, starting with the
/// checksum.
fn verify_self(
    place: &ExpectedBlock<'_>,
    structure: &'static str,
    data: &[u8],
    crc: usize,
) -> Result<(), Corruption> {
    if !place.geometry.features.crc() {
        return Ok(());
    }
    if place.depth == Depth::Sealed {
        checksum::check(structure, data, crc)?;
    }
    let fault = |problem: &str| Corruption::new(structure, problem);
    let (blkno, owner) = (be64(data, crc + 4), be64(data, crc + 36));
    let expected = place.geometry.daddr(place.block);
    if blkno != expected {
        return Err(fault("it contains another location").mismatch(expected, blkno));
    }
    if data[crc + 20..crc + 36] != place.geometry.meta_uuid {
        return Err(fault("it belongs to another file system"));
    }
    if owner != place.ino.0 {
        return Err(fault("it belongs to another inode").mismatch(place.ino, owner));
    }
    Ok(())
}

const _: () = {
    assert!(offset_of!(DirHeader, blkno) == DIR_CRC + 4);
    assert!(offset_of!(DirHeader, uuid) == DIR_CRC + 20);
    assert!(offset_of!(DirHeader, owner) == DIR_CRC + 36);
    assert!(offset_of!(DaHeader, blkno) == DA_CRC + 4);
    assert!(offset_of!(DaHeader, uuid) == DA_CRC + 20);
    assert!(offset_of!(DaHeader, owner) == DA_CRC + 36);
    assert!(offset_of!(DaHeader, lsn) == DA_CRC + 12 && offset_of!(DirHeader, lsn) == DIR_CRC + 12);
    assert!(offset_of!(DaHeader, pad) == DA_MAGIC + 2);
};

/// Returns the index in pairs of magic numbers.
fn version(geometry: &Geometry) -> usize {
    usize::from(!geometry.features.crc())
}

/// Checks the header of a data or free-space block.
pub(super) fn verify_dir(
    place: &ExpectedBlock<'_>,
    structure: &'static str,
    data: &[u8],
    magics: &[[u32; 2]],
) -> Result<(), Corruption> {
    let version = version(place.geometry);
    let found = be32(data, offset_of!(DirHeader, magic));
    if !magics.iter().any(|pair| pair[version] == found) {
        let expected = magics.first().map_or(0, |pair| pair[version]);
        let damage = Corruption::new(structure, "wrong magic number");
        return Err(damage.mismatch(format_args!("{expected:#x}"), format_args!("{found:#x}")));
    }
    verify_self(place, structure, data, DIR_CRC)
}

/// Checks the header of a leaf or node.
pub(super) fn verify_da(place: &ExpectedBlock<'_>, data: &[u8]) -> Result<(), Corruption> {
    let version = version(place.geometry);
    let found = be16(data, DA_MAGIC);
    let known = [magic::LEAF1, magic::LEAFN, magic::NODE];
    if !known.iter().any(|pair| pair[version] == found) {
        let damage = Corruption::new("directory leaf", "wrong magic number");
        return Err(damage
            .mismatch(format_args!("{:#x}", magic::LEAFN[version]), format_args!("{found:#x}")));
    }
    verify_self(place, "directory leaf", data, DA_CRC)
}

/// Returns the value of the first nonzero padding in a header of version 5 that the kernel's scrub refuses. It accepts
/// any padding of data blocks, and at the end of the header of nodes and of leaves below them.
pub(crate) fn padding(part: DirBlockKind, data: &[u8]) -> Option<u32> {
    let is_single = be16(data, DA_MAGIC) == magic::LEAF1[0];
    let in_common = (part == DirBlockKind::Leaf).then(|| u32::from(be16(data, DA_PAD)));
    let at_end = (part == DirBlockKind::Free || part == DirBlockKind::Leaf && is_single)
        .then(|| be32(data, END_PAD));
    in_common.into_iter().chain(at_end).find(|value| *value != 0)
}

/// Returns whether a data block has a hash index at its end.
pub(crate) fn is_block_form(layout: &DirLayout, data: &[u8]) -> bool {
    be32(data, 0) == magic::BLOCK[layout.version()]
}

/// Writes the self-describing fields, which only version 5 has.
fn init_self(geometry: &Geometry, ino: Ino, block: Block, data: &mut [u8], crc: usize) {
    if !geometry.features.crc() {
        return;
    }
    put64(data, crc + 4, geometry.daddr(block));
    data[crc + 20..crc + 36].copy_from_slice(&geometry.meta_uuid);
    put64(data, crc + 36, ino.0);
}

/// Writes the header of a new data or free-space block.
pub(crate) fn init_dir(
    geometry: &Geometry,
    ino: Ino,
    block: Block,
    magic: [u32; 2],
    data: &mut [u8],
) {
    put32(data, offset_of!(DirHeader, magic), magic[version(geometry)]);
    init_self(geometry, ino, block, data, DIR_CRC);
}

/// Writes the header of a new leaf or node, without siblings.
pub(crate) fn init_da(
    geometry: &Geometry,
    ino: Ino,
    block: Block,
    magic: [u16; 2],
    data: &mut [u8],
) {
    put16(data, DA_MAGIC, magic[version(geometry)]);
    init_self(geometry, ino, block, data, DA_CRC);
}
