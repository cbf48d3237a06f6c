//! The on-disk format of extended attributes.
//!
//! Few and short ones are in the inode ([`shortform`]). Otherwise the attribute fork has blocks: a [`leaf`] at logical
//! block 0, or a tree of [`node`]s over leaves, ordered by the hash of the names. Values too long for a leaf are in
//! other blocks of the same fork ([`remote`]).
//!
//! Blocks are verified once, when they are read. Later accesses rely on this for correct results, but not for memory
//! safety: on an invalid block they end early.

pub mod acl;
pub mod leaf;
pub mod leaf_change;
pub mod name;
pub mod node;
pub mod remote;
pub mod shortform;

use engine::Corruption;

use super::address::Block;
use super::bytes::{be16, be32, be64, put16, put32, put64};
use super::checksum;
use super::edit::Edit;
use super::geometry::Geometry;

/// Bits of an entry's flags (`XFS_ATTR_*`).
pub(crate) mod flags {
    /// The value is in the leaf.
    pub(crate) const LOCAL: u8 = 1;
    /// `trusted.`
    pub(crate) const ROOT: u8 = 1 << 1;
    /// `security.`
    pub(crate) const SECURE: u8 = 1 << 2;
    /// A parent pointer.
    pub(crate) const PARENT: u8 = 1 << 3;
    /// The entry is being created or removed, and must be ignored.
    pub(crate) const INCOMPLETE: u8 = 1 << 7;
    /// The bits that distinguish attributes with one name.
    pub(crate) const NAMESPACE: u8 = ROOT | SECURE | PARENT;
}

/// Maximum length of a name, without its prefix, in bytes.
pub(crate) const NAME_LEN_MAX: usize = 255;
/// Maximum length of a value, in bytes (`XATTR_SIZE_MAX`).
pub(crate) const VALUE_LEN_MAX: usize = 1 << 16;

/// Magic number of a leaf with checksums (`XFS_ATTR3_LEAF_MAGIC`).
pub(crate) const LEAF_MAGIC: u16 = 0x3bee;
/// Magic number of a leaf without (`XFS_ATTR_LEAF_MAGIC`).
const LEAF_MAGIC_V4: u16 = 0xfbee;
/// Magic number of a node with checksums (`XFS_DA3_NODE_MAGIC`).
const NODE_MAGIC: u16 = 0x3ebe;
/// Magic number of a node without (`XFS_DA_NODE_MAGIC`).
const NODE_MAGIC_V4: u16 = 0xfebe;
/// Byte offset of the checksum in a block of version 5.
const CRC_OFFSET: usize = 12;

const STRUCTURE: &str = "attribute block";

/// The type of a block of attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockType {
    /// Entries.
    Leaf,
    /// Addresses of blocks one level below.
    Node,
}

/// Layout of attribute blocks, which differs between versions 4 and 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttrLayout {
    /// Block size in bytes.
    pub block_size: usize,
    /// True if blocks have checksums (version 5).
    pub crc: bool,
}

impl AttrLayout {
    /// Returns the layout of a file system's blocks.
    pub(crate) const fn new(geometry: &Geometry) -> Self {
        Self { block_size: geometry.block_size(), crc: geometry.features.crc() }
    }

    /// Returns the size of the common header: siblings, magic number and the additional fields of version 5.
    const fn info_size(self) -> usize {
        if self.crc { 56 } else { 12 }
    }

    /// Returns the size of a leaf's header in bytes.
    const fn leaf_header(self) -> usize {
        if self.crc { 80 } else { 32 }
    }

    /// Returns the size of a leaf's header in bytes, for readers outside of this module.
    pub(crate) const fn leaf_header_size(self) -> usize {
        self.leaf_header()
    }

    /// Returns the size of a node's header in bytes.
    const fn node_header(self) -> usize {
        if self.crc { 64 } else { 16 }
    }

    /// Returns the magic number of a type of block.
    const fn magic(self, kind: BlockType) -> u16 {
        match (kind, self.crc) {
            (BlockType::Leaf, true) => LEAF_MAGIC,
            (BlockType::Leaf, false) => LEAF_MAGIC_V4,
            (BlockType::Node, true) => NODE_MAGIC,
            (BlockType::Node, false) => NODE_MAGIC_V4,
        }
    }

    /// Returns the type of a block, or `None` for other magic numbers.
    pub(crate) fn block_type(self, data: &[u8]) -> Option<BlockType> {
        let magic = be16(data, 8);
        [BlockType::Leaf, BlockType::Node].into_iter().find(|kind| self.magic(*kind) == magic)
    }
}

/// Returns the value of the first nonzero padding in a header of version 5 that the kernel's scrub refuses. It accepts
/// any padding at the end of the header of nodes.
pub(crate) fn padding(kind: BlockType, data: &[u8]) -> Option<u32> {
    let in_common = u32::from(be16(data, 10));
    let others = match kind {
        BlockType::Node => [0, 0],
        BlockType::Leaf => [u32::from(data[63]), be32(data, 76)],
    };
    [in_common].into_iter().chain(others).find(|value| *value != 0)
}

/// Returns the next logical block of the same level; 0 for none.
pub(crate) fn forward(data: &[u8]) -> u32 {
    be32(data, 0)
}

/// Returns the previous logical block of the same level; 0 for none.
pub(crate) fn back(data: &[u8]) -> u32 {
    be32(data, 4)
}

/// Sets the next logical block.
pub(crate) fn set_forward(block: &mut impl Edit, at: u32) {
    put32(block.edit(0..4), 0, at);
}

/// Sets the previous logical block.
pub(crate) fn set_back(block: &mut impl Edit, at: u32) {
    put32(block.edit(4..8), 0, at);
}

/// Owner and location stored in a block's header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    /// The inode.
    pub owner: u64,
    /// Its location on the device.
    pub block: Block,
}

/// Writes the common header of a new block, without siblings.
pub(crate) fn write_info(
    block: &mut impl Edit,
    geometry: &Geometry,
    kind: BlockType,
    who: Identity,
) {
    let layout = AttrLayout::new(geometry);
    let info = block.edit(0..layout.info_size());
    info.fill(0);
    put16(info, 8, layout.magic(kind));
    if layout.crc {
        info[32..48].copy_from_slice(&geometry.meta_uuid);
        put64(info, 48, who.owner);
        put64(info, 16, geometry.daddr(who.block));
    }
}

/// Corrects the location in a block's header, after its contents were copied from another block.
pub(crate) fn set_place(block: &mut impl Edit, geometry: &Geometry, place: Block) {
    if geometry.features.crc() {
        put64(block.edit(16..24), 0, geometry.daddr(place));
    }
}

/// Checks a leaf or node that was just read.
pub(crate) fn verify(
    geometry: &Geometry,
    owner: u64,
    block: Block,
    data: &[u8],
) -> Result<(), Corruption> {
    let layout = AttrLayout::new(geometry);
    verify_kind(layout, data).map_err(|c| c.of_inode(owner))?;
    if layout.crc {
        checksum::check(STRUCTURE, data, CRC_OFFSET).map_err(|c| c.of_inode(owner))?;
    }
    verify_structure(geometry, owner, block, data)
}

/// Checks a leaf or node except for its checksum, before it is sealed.
pub(crate) fn verify_structure(
    geometry: &Geometry,
    owner: u64,
    block: Block,
    data: &[u8],
) -> Result<(), Corruption> {
    let layout = AttrLayout::new(geometry);
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

fn verify_kind(layout: AttrLayout, data: &[u8]) -> Result<BlockType, Corruption> {
    layout.block_type(data).ok_or_else(|| {
        let magic = |kind| layout.magic(kind);
        let expected =
            format!("{:#06x} or {:#06x}", magic(BlockType::Leaf), magic(BlockType::Node));
        Corruption::new(STRUCTURE, "wrong magic number")
            .mismatch(expected, format_args!("{:#06x}", be16(data, 8)))
    })
}

/// Updates the checksum of a leaf or node.
pub(crate) fn seal(geometry: &Geometry, data: &mut [u8]) {
    if geometry.features.crc() {
        checksum::seal(data, CRC_OFFSET);
    }
}

/// The self-describing fields of a version 5 block.
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
        return Err(damage("it contains another location").mismatch(daddr, stated.daddr));
    }
    Ok(())
}
