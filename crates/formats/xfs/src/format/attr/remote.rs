//! Remote values, in their own blocks.
//!
//! In version 5 each file-system block has a header: "XARM", offset in the value be32, length in it be32, checksum,
//! UUID, owner be64, location be64, LSN be64 (always all ones). In version 4 the blocks contain only the value.

use engine::Corruption;

use super::super::address::Block;
use super::super::bytes::{be32, be64, put32, put64};
use super::super::checksum;
use super::super::geometry::Geometry;
use super::{AttrLayout, CRC_OFFSET, Identity, Stated, VALUE_LEN_MAX, verify_identity};

const MAGIC: u32 = 0x5841_524d;
/// Size of the header of version 5, in bytes.
const HEADER_SIZE: usize = 56;
const STRUCTURE: &str = "attribute value";

/// The location of a value: consecutive logical blocks of the attribute fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValueLocation {
    /// The first logical block.
    pub block: u32,
    /// Length of the value in bytes.
    pub len: u32,
}

const fn header_size(layout: AttrLayout) -> usize {
    if layout.crc { HEADER_SIZE } else { 0 }
}

/// Returns the number of bytes of a value per block.
pub(crate) const fn bytes_per_block(layout: AttrLayout) -> usize {
    layout.block_size - header_size(layout)
}

/// Returns the number of blocks of a value.
pub(crate) const fn blocks(layout: AttrLayout, len: usize) -> u32 {
    len.div_ceil(bytes_per_block(layout)) as u32
}

/// Returns the part of a value in a block: `len` bytes from `offset` on.
///
/// # Errors
/// If the block's header has other numbers.
pub(crate) fn part(
    layout: AttrLayout,
    data: &[u8],
    offset: usize,
    len: usize,
) -> Result<&[u8], Corruption> {
    if layout.crc {
        let stated = (be32(data, 4) as usize, be32(data, 8) as usize);
        if stated != (offset, len) {
            return Err(Corruption::new(STRUCTURE, "it is another part of the value").mismatch(
                format_args!("{len} bytes from {offset}"),
                format_args!("{} bytes from {}", stated.1, stated.0),
            ));
        }
    }
    let start = header_size(layout);
    data.get(start..start + len).ok_or_else(|| Corruption::new(STRUCTURE, "longer than its block"))
}

/// Writes a block with the part of a value that starts at `offset`.
pub(crate) fn fill(
    data: &mut [u8],
    geometry: &Geometry,
    who: Identity,
    offset: usize,
    part: &[u8],
) {
    let start = header_size(AttrLayout::new(geometry));
    data.fill(0);
    data[start..start + part.len()].copy_from_slice(part);
    if start != 0 {
        put32(data, 0, MAGIC);
        put32(data, 4, offset as u32);
        put32(data, 8, part.len() as u32);
        data[16..32].copy_from_slice(&geometry.meta_uuid);
        put64(data, 32, who.owner);
        put64(data, 40, geometry.daddr(who.block));
        put64(data, 48, u64::MAX);
    }
}

/// Checks a block of a value that was just read. [`part`] checks which part of the value it is.
pub(crate) fn verify(
    geometry: &Geometry,
    owner: u64,
    block: Block,
    data: &[u8],
) -> Result<(), Corruption> {
    if !geometry.features.crc() {
        return Ok(());
    }
    verify_magic(data).map_err(|c| c.of_inode(owner))?;
    checksum::check(STRUCTURE, data, CRC_OFFSET).map_err(|c| c.of_inode(owner))?;
    verify_place(geometry, owner, block, data)
}

/// Checks a block of a value except for its checksum, before it is sealed. Version 4 has nothing to check.
pub(crate) fn verify_structure(
    geometry: &Geometry,
    owner: u64,
    block: Block,
    data: &[u8],
) -> Result<(), Corruption> {
    if !geometry.features.crc() {
        return Ok(());
    }
    verify_magic(data).map_err(|c| c.of_inode(owner))?;
    verify_place(geometry, owner, block, data)?;
    let (offset, len) = (be32(data, 4) as usize, be32(data, 8) as usize);
    let most = bytes_per_block(AttrLayout::new(geometry));
    if len == 0 || len > most || offset.saturating_add(len) > VALUE_LEN_MAX {
        return Err(Corruption::new(STRUCTURE, "not part of a value").of_inode(owner).mismatch(
            format_args!("1 to {most} bytes below {VALUE_LEN_MAX}"),
            format_args!("{len} bytes from {offset}"),
        ));
    }
    Ok(())
}

fn verify_magic(data: &[u8]) -> Result<(), Corruption> {
    let found = be32(data, 0);
    if found == MAGIC {
        return Ok(());
    }
    Err(Corruption::new(STRUCTURE, "wrong magic number")
        .mismatch(format_args!("{MAGIC:#010x}"), format_args!("{found:#010x}")))
}

fn verify_place(
    geometry: &Geometry,
    owner: u64,
    block: Block,
    data: &[u8],
) -> Result<(), Corruption> {
    let who = Identity { owner, block };
    let stated = Stated { uuid: &data[16..32], owner: be64(data, 32), daddr: be64(data, 40) };
    verify_identity(STRUCTURE, geometry, who, stated)
}

/// Updates the checksum of a block.
pub(crate) fn seal(geometry: &Geometry, data: &mut [u8]) {
    if geometry.features.crc() {
        checksum::seal(data, CRC_OFFSET);
    }
}
