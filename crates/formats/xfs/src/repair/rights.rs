//! Resolves blocks with several owners when there is no reverse map. Self-describing metadata wins; damaged inodes
//! lose.

use std::collections::HashMap;

use disk::BlockDevice;
use operations::repair::Staging;
use vfs::check::Code;

use crate::check::codes;
use crate::format::address::Block;
use crate::format::btree::TreeShape;
use crate::format::bytes::{be16, be64};
use crate::format::geometry::Geometry;

/// Findings about inodes and their extent maps. The first does not concern their blocks.
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
    codes::METADIR_ROOT,
    codes::RTRMAPBT.checksum,
    codes::RTRMAPBT.block,
    codes::RTRMAPBT.links,
    codes::RTRMAPBT.keys,
    codes::RTRMAPBT.records,
    codes::RTREFCOUNTBT.checksum,
    codes::RTREFCOUNTBT.block,
    codes::RTREFCOUNTBT.links,
    codes::RTREFCOUNTBT.keys,
    codes::RTREFCOUNTBT.records,
];
/// Findings about the blocks and extents of an inode.
pub(super) const OF_MAPS: &[&Code] = OF_FILES.split_at(1).1;
/// Findings about damage of an inode, but not of its extent map.
const OF_INODES: &[&Code] = &[codes::INODE, codes::INODE_CHECKSUM, codes::INODE_NOT_USED];
/// Trees of space, whose blocks contain the number of their group.
const OF_SPACE: [TreeShape; 4] =
    [TreeShape::BNO, TreeShape::CNT, TreeShape::RMAP, TreeShape::REFCOUNT];

/// Byte offsets of owner, location and file system UUID in a metadata block.
struct Signature {
    owner: usize,
    place: usize,
    uuid: usize,
}

const OF_TREE: Signature = Signature { owner: 56, place: 24, uuid: 40 };
const OF_DIRECTORY: Signature = Signature { owner: 40, place: 8, uuid: 24 };
const OF_INDEX: Signature = Signature { owner: 48, place: 16, uuid: 32 };
const OF_VALUE: Signature = Signature { owner: 32, place: 40, uuid: 16 };

/// The owner of the metadata in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// An inode.
    Inode(u64),
    /// A tree of free space or the reverse map.
    Space,
}

/// Returns the owner in a block's header, if location and UUID match. Version 4 has no such fields.
pub(super) fn sign(staging: &Staging, geometry: &Geometry, block: Block) -> Option<Sign> {
    let mut data = vec![0; geometry.block_size()];
    let is_read = staging.read_at(geometry.byte_of(block), &mut data).is_ok();
    if !is_read || !geometry.features.crc() {
        return None;
    }
    let (ag, _) = geometry.locate(block);
    let is_of_space = |shape: &TreeShape| shape.verify(geometry, block, ag.0.into(), &data).is_ok();
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

/// Inodes that were damaged and repaired, with the severity of the evidence against their maps.
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

    /// Returns the severity of the evidence against the claims of an inode.
    pub(super) fn weight(&self, ino: u64) -> u8 {
        self.0.get(&ino).copied().unwrap_or(0)
    }
}
