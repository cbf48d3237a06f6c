//! Who has a right to a block that several claim, where no reverse map tells: metadata say whose they are, and who was
//! damaged is believed last.

use std::collections::HashMap;

use ::repair::Staging;
use blockdev::BlockDevice;
use check::Code;

use crate::check::codes;
use crate::format::address::Block;
use crate::format::btree::Shape;
use crate::format::bytes::{be16, be64};
use crate::format::geometry::Geometry;

/// What was found of inodes and their maps; first of all what says nothing of their blocks.
pub(super) const OF_FILES: &[&Code] = &[
    codes::INODE_FIELD,
    codes::INODE,
    codes::INODE_CHECKSUM,
    codes::INODE_NOT_USED,
    codes::INODE_COUNTS,
    codes::INODE_MAP,
    codes::BMBT.checksum,
    codes::BMBT.block,
    codes::BMBT.links,
    codes::BMBT.keys,
    codes::BMBT.records,
    codes::ROOT,
];
/// What was found of which blocks and extents an inode has.
pub(super) const OF_MAPS: &[&Code] = OF_FILES.split_at(1).1;
/// Those of them that say that an inode was damaged, but not that its map was.
const OF_INODES: &[&Code] = &[codes::INODE, codes::INODE_CHECKSUM, codes::INODE_NOT_USED];
/// Trees of space, whose blocks bear the number of their group.
const OF_SPACE: [Shape; 4] = [Shape::BNO, Shape::CNT, Shape::RMAP, Shape::REFCOUNT];

/// Where a block of metadata says whose it is, what place it has, and of which file system it is, in bytes.
struct Signature {
    owner: usize,
    place: usize,
    uuid: usize,
}

const OF_TREE: Signature = Signature { owner: 56, place: 24, uuid: 40 };
const OF_DIRECTORY: Signature = Signature { owner: 40, place: 8, uuid: 24 };
const OF_INDEX: Signature = Signature { owner: 48, place: 16, uuid: 32 };
const OF_VALUE: Signature = Signature { owner: 32, place: 40, uuid: 16 };

/// Whose metadata a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// An inode's.
    Inode(u64),
    /// A tree's that says which space is free, or who has it.
    Space,
}

/// What a block says of itself, if all of it is of this place and this file system. Version 4 says nothing.
pub(super) fn sign(staging: &Staging, geometry: &Geometry, block: Block) -> Option<Sign> {
    let mut data = vec![0; geometry.block_size()];
    let is_read = staging.read_at(geometry.byte_of(block), &mut data).is_ok();
    if !is_read || !geometry.features.crc() {
        return None;
    }
    let (ag, _) = geometry.locate(block);
    let is_of_space = |shape: &Shape| shape.verify(geometry, block, ag.0.into(), &data).is_ok();
    if OF_SPACE.iter().any(is_of_space) {
        return Some(Sign::Space);
    }
    let signature = match (&data[..4], be16(&data, 8)) {
        (b"BMA3", _) => OF_TREE,
        (b"XDB3" | b"XDD3" | b"XDF3", _) => OF_DIRECTORY,
        (b"XSLM" | b"XARM", _) => OF_VALUE,
        (_, 0x3df1 | 0x3dff | 0x3ebe | 0x3bee) => OF_INDEX,
        _ => return None,
    };
    let is_here = be64(&data, signature.place) == geometry.daddr(block)
        && data[signature.uuid..signature.uuid + 16] == geometry.meta_uuid;
    is_here.then(|| Sign::Inode(be64(&data, signature.owner)))
}

/// Inodes that were found damaged and were mended, with how much that speaks against their maps.
pub(super) struct Suspects(HashMap<u64, u8>);

impl Suspects {
    pub(super) fn of(staging: &Staging) -> Self {
        let mut suspects = HashMap::new();
        staging.for_each_action(|action| {
            let code = action.code.filter(|code| OF_MAPS.contains(code));
            if let (Some(code), Some(ino)) = (code, action.place.inode) {
                let weight = if OF_INODES.contains(&code) { 1 } else { 2 };
                let known: &mut u8 = suspects.entry(ino).or_default();
                *known = weight.max(*known);
            }
        });
        Self(suspects)
    }

    /// How much speaks against what an inode claims.
    pub(super) fn weight(&self, ino: u64) -> u8 {
        self.0.get(&ino).copied().unwrap_or(0)
    }
}
