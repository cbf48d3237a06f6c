//! Extended attributes as they lie on disk.
//!
//! Few and short ones are in the inode ([`shortform`]). Otherwise the attribute fork has blocks: a
//! [`leaf`] at logical block 0, or a tree of [`node`]s over leaves, ordered by the hash of the names.
//! Values too long for a leaf lie in blocks of the same fork ([`remote`]).
//!
//! Blocks are verified once, when they are read. What looks at them afterwards relies on that for
//! its results, but not for its safety: on a bad block it ends early.

pub mod acl;
pub mod leaf;
pub mod leaf_change;
pub mod name;
pub mod node;
pub mod remote;
pub mod shortform;

use transaction::Corruption;

use super::address::Block;
use super::bytes::{be16, be32, be64, put16, put32, put64};
use super::checksum;
use super::edit::Edit;
use super::geometry::Geometry;

/// Bits of an entry's flags (`XFS_ATTR_*`).
pub mod flags {
    /// The value is in the leaf.
    pub const LOCAL: u8 = 1;
    /// `trusted.`
    pub const ROOT: u8 = 1 << 1;
    /// `security.`
    pub const SECURE: u8 = 1 << 2;
    /// A parent pointer.
    pub const PARENT: u8 = 1 << 3;
    /// The entry is being made or removed: it does not count.
    pub const INCOMPLETE: u8 = 1 << 7;
    /// What tells attributes of one name apart.
    pub const NAMESPACE: u8 = ROOT | SECURE | PARENT;
}

/// Longest name of an attribute, without its prefix, in bytes.
pub const NAME_LEN_MAX: usize = 255;
/// Longest value, in bytes (`XATTR_SIZE_MAX`).
pub const VALUE_LEN_MAX: usize = 1 << 16;

/// Magic number of a leaf with checksums (`XFS_ATTR3_LEAF_MAGIC`).
pub const LEAF_MAGIC: u16 = 0x3bee;
/// Magic number of a leaf without (`XFS_ATTR_LEAF_MAGIC`).
const LEAF_MAGIC_V4: u16 = 0xfbee;
/// Magic number of a node with checksums (`XFS_DA3_NODE_MAGIC`).
const NODE_MAGIC: u16 = 0x3ebe;
/// Magic number of a node without (`XFS_DA_NODE_MAGIC`).
const NODE_MAGIC_V4: u16 = 0xfebe;
/// Byte of the checksum in a block of version 5.
const CRC_OFFSET: usize = 12;

const STRUCTURE: &str = "attribute block";

/// What a block of attributes holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockType {
    /// Entries.
    Leaf,
    /// Addresses of blocks one level below.
    Node,
}

/// Where things are in blocks of attributes: they differ between versions 4 and 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a block.
    pub block_size: usize,
    /// Whether blocks have checksums (version 5).
    pub crc: bool,
}

impl Layout {
    /// The layout of this file system's blocks.
    pub const fn new(geometry: &Geometry) -> Self {
        Self { block_size: geometry.block_size(), crc: geometry.features.crc() }
    }

    /// Bytes of what starts every block: siblings, magic number and what version 5 added.
    const fn info_size(self) -> usize {
        if self.crc { 56 } else { 12 }
    }

    /// Bytes of a leaf's header.
    const fn leaf_header(self) -> usize {
        if self.crc { 80 } else { 32 }
    }

    /// Bytes of a node's header.
    const fn node_header(self) -> usize {
        if self.crc { 64 } else { 16 }
    }

    /// The magic number of a kind of block.
    const fn magic(self, kind: BlockType) -> u16 {
        match (kind, self.crc) {
            (BlockType::Leaf, true) => LEAF_MAGIC,
            (BlockType::Leaf, false) => LEAF_MAGIC_V4,
            (BlockType::Node, true) => NODE_MAGIC,
            (BlockType::Node, false) => NODE_MAGIC_V4,
        }
    }

    /// What a block is, or `None` if its magic number is none of attributes.
    pub fn block_type(self, data: &[u8]) -> Option<BlockType> {
        let magic = be16(data, 8);
        [BlockType::Leaf, BlockType::Node].into_iter().find(|kind| self.magic(*kind) == magic)
    }
}

/// The logical block that follows at the same level; 0 for none.
pub fn forward(data: &[u8]) -> u32 {
    be32(data, 0)
}

/// The logical block that precedes at the same level; 0 for none.
pub fn back(data: &[u8]) -> u32 {
    be32(data, 4)
}

/// Sets the logical block that follows.
pub fn set_forward(block: &mut impl Edit, at: u32) {
    put32(block.edit(0..4), 0, at);
}

/// Sets the logical block that precedes.
pub fn set_back(block: &mut impl Edit, at: u32) {
    put32(block.edit(4..8), 0, at);
}

/// Whom a block belongs to, as its header says.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// The inode.
    pub owner: u64,
    /// Its place on the device.
    pub block: Block,
}

/// Writes the common start of a new block of version 5. It has no siblings.
pub fn write_info(block: &mut impl Edit, geometry: &Geometry, kind: BlockType, who: Identity) {
    let layout = Layout::new(geometry);
    let info = block.edit(0..layout.info_size());
    info.fill(0);
    put16(info, 8, layout.magic(kind));
    if layout.crc {
        info[32..48].copy_from_slice(&geometry.meta_uuid);
        put64(info, 48, who.owner);
        put64(info, 16, geometry.daddr(who.block));
    }
}

/// Corrects the place that a block's header states, after its contents were copied from another.
pub fn set_place(block: &mut impl Edit, geometry: &Geometry, place: Block) {
    if geometry.features.crc() {
        put64(block.edit(16..24), 0, geometry.daddr(place));
    }
}

/// Checks a leaf or node that was just read.
pub fn verify(
    geometry: &Geometry,
    owner: u64,
    block: Block,
    data: &[u8],
) -> Result<(), Corruption> {
    let layout = Layout::new(geometry);
    verify_kind(layout, data).map_err(|c| c.of_inode(owner))?;
    if layout.crc {
        checksum::check(STRUCTURE, data, CRC_OFFSET).map_err(|c| c.of_inode(owner))?;
    }
    verify_structure(geometry, owner, block, data)
}

/// Checks all of a leaf or node but its checksum: what must be so before it is sealed.
pub fn verify_structure(
    geometry: &Geometry,
    owner: u64,
    block: Block,
    data: &[u8],
) -> Result<(), Corruption> {
    let layout = Layout::new(geometry);
    let kind = verify_kind(layout, data).map_err(|c| c.of_inode(owner))?;
    if layout.crc {
        let stated = Stated { uuid: &data[32..48], owner: be64(data, 48), daddr: be64(data, 16) };
        verify_identity(STRUCTURE, geometry, Identity { owner, block }, stated)?;
    }
    let outcome = match kind {
        BlockType::Leaf => leaf::verify(layout, data),
        BlockType::Node => node::verify(layout, data),
    };
    outcome.map_err(|c| c.of_inode(owner))
}

fn verify_kind(layout: Layout, data: &[u8]) -> Result<BlockType, Corruption> {
    layout.block_type(data).ok_or_else(|| {
        let magic = |kind| layout.magic(kind);
        let expected =
            format!("{:#06x} or {:#06x}", magic(BlockType::Leaf), magic(BlockType::Node));
        Corruption::new(STRUCTURE, "wrong magic number")
            .mismatch(expected, format_args!("{:#06x}", be16(data, 8)))
    })
}

/// Brings the checksum of a leaf or node up to date.
pub fn seal(geometry: &Geometry, data: &mut [u8]) {
    if geometry.features.crc() {
        checksum::seal(data, CRC_OFFSET);
    }
}

/// What a block of version 5 says of itself.
struct Stated<'d> {
    uuid: &'d [u8],
    owner: u64,
    daddr: u64,
}

fn verify_identity(
    structure: &'static str,
    geometry: &Geometry,
    who: Identity,
    stated: Stated<'_>,
) -> Result<(), Corruption> {
    let damage = |problem| Corruption::new(structure, problem).of_inode(who.owner);
    if stated.uuid != geometry.meta_uuid {
        return Err(damage("it belongs to another file system"));
    }
    if stated.owner != who.owner {
        return Err(damage("it belongs to another inode").mismatch(who.owner, stated.owner));
    }
    let daddr = geometry.daddr(who.block);
    if stated.daddr != daddr {
        return Err(damage("it bears another place").mismatch(daddr, stated.daddr));
    }
    Ok(())
}
