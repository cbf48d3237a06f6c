//! Identifying metadata blocks by their magic number, and the location of the fields common to such blocks in version
//! 5: checksum, UUID, and the LSN of the last change.

use std::mem::offset_of;

use vfs::{Corruption, Ino, Result};

use crate::format::address::Block;
use crate::format::ag::{self, RawAgf, RawAgfl, RawAgi};
use crate::format::btree::TreeShape;
use crate::format::bytes::{be16, be32, be64};
use crate::format::dir::{self, DirBlockKind, magic};
use crate::format::features::Incompat;
use crate::format::geometry::Geometry;
use crate::format::log::Lsn;
use crate::format::log::buffer::BufferType;
use crate::format::realtime::space::SpaceFile;
use crate::format::superblock::{self, RawSuperblock, Superblock};
use crate::format::{attr, checksum, symlink};

/// A kind of metadata block with an LSN.
#[derive(Clone, Copy, Debug)]
pub(super) enum Structure {
    Superblock,
    Agf,
    Agi,
    Agfl,
    /// A block of a tree of a group.
    GroupTree(TreeShape),
    /// A block of a tree whose root is in a fork.
    ForkTree(TreeShape),
    /// A block of the bitmap or the summary of a realtime group.
    Space(SpaceFile),
    DirData,
    DirFree,
    DirLeaf,
    /// A node of a directory or of attributes.
    Node,
    AttrLeaf,
    Symlink,
}

/// Byte offsets of fields in a block.
struct Fields {
    crc: usize,
    lsn: usize,
    uuid: usize,
}

/// Trees whose roots are in forks.
const FORK_TREES: [TreeShape; 3] = [TreeShape::BMBT, TreeShape::RTRMAP, TreeShape::RTREFCOUNT];
const GROUP_TREES: [TreeShape; 6] = [
    TreeShape::BNO,
    TreeShape::CNT,
    TreeShape::INO,
    TreeShape::FINO,
    TreeShape::RMAP,
    TreeShape::REFCOUNT,
];
/// Byte offset of the magic number of leaves and nodes.
const DA_MAGIC: usize = 8;
/// Byte offset of the owner in a block of an extent map, in a leaf or node, and in directory data.
const FORK_TREE_OWNER: usize = 56;
const DA_OWNER: usize = 48;
const DIR_OWNER: usize = 40;
/// Byte offset of the owner in a block of a bitmap or a summary.
const SPACE_OWNER: usize = 8;
/// Byte offset of the first entry's address in a node.
const NODE_FIRST_CHILD: usize = 68;
/// Byte offset of `firstdb` in a block of the free-space index.
const FREE_FIRST: usize = 48;

impl Structure {
    /// Identifies a version 5 block of at least 512 bytes.
    pub(super) fn of(data: &[u8]) -> Option<Self> {
        let found = be32(data, 0);
        let tree = GROUP_TREES.into_iter().find(|shape| shape.magics[1] == found);
        let fork_tree = FORK_TREES.into_iter().find(|shape| shape.magics[1] == found);
        if let Some(shape) = fork_tree {
            return Some(Self::ForkTree(shape));
        }
        if let Some(file) = SpaceFile::of_magic(found) {
            return Some(Self::Space(file));
        }
        Some(match found {
            superblock::MAGIC => Self::Superblock,
            ag::AGF_MAGIC => Self::Agf,
            ag::AGI_MAGIC => Self::Agi,
            ag::AGFL_MAGIC => Self::Agfl,
            symlink::MAGIC => Self::Symlink,
            found if found == magic::BLOCK[0] || found == magic::DATA[0] => Self::DirData,
            found if found == magic::FREE[0] => Self::DirFree,
            _ => match (tree, be16(data, DA_MAGIC)) {
                (Some(shape), _) => Self::GroupTree(shape),
                (_, found) if found == magic::LEAF1[0] || found == magic::LEAFN[0] => Self::DirLeaf,
                (_, found) if found == magic::NODE[0] => Self::Node,
                (_, attr::LEAF_MAGIC) => Self::AttrLeaf,
                _ => return None,
            },
        })
    }

    /// Returns whether a buffer logged with type `contents` may be this structure.
    pub(super) const fn fits(self, contents: BufferType) -> bool {
        use BufferType as B;
        match self {
            Self::Superblock => matches!(contents, B::Superblock),
            Self::Agf => matches!(contents, B::Agf),
            Self::Agi => matches!(contents, B::Agi),
            Self::Agfl => matches!(contents, B::Agfl),
            Self::GroupTree(_) | Self::ForkTree(_) => matches!(contents, B::Btree),
            Self::Space(SpaceFile::Bitmap) => matches!(contents, B::RealtimeBitmap),
            Self::Space(SpaceFile::Summary) => matches!(contents, B::RealtimeSummary),
            Self::DirData => matches!(contents, B::DirBlock | B::DirData),
            Self::DirFree => matches!(contents, B::DirFree),
            Self::DirLeaf => matches!(contents, B::DirLeaf1 | B::DirLeafN),
            Self::Node => matches!(contents, B::DaNode),
            Self::AttrLeaf => matches!(contents, B::AttrLeaf),
            Self::Symlink => matches!(contents, B::Symlink),
        }
    }

    fn fields(self, geometry: &Geometry) -> Fields {
        match self {
            Self::Superblock => {
                let has_meta_uuid = geometry.features.incompat(Incompat::META_UUID);
                let own = offset_of!(RawSuperblock, uuid);
                let meta = offset_of!(RawSuperblock, meta_uuid);
                Fields {
                    crc: superblock::CRC_OFFSET,
                    lsn: offset_of!(RawSuperblock, lsn),
                    uuid: if has_meta_uuid { meta } else { own },
                }
            }
            Self::Agf => Fields {
                crc: offset_of!(RawAgf, crc),
                lsn: offset_of!(RawAgf, lsn),
                uuid: offset_of!(RawAgf, uuid),
            },
            Self::Agi => Fields {
                crc: offset_of!(RawAgi, crc),
                lsn: offset_of!(RawAgi, lsn),
                uuid: offset_of!(RawAgi, uuid),
            },
            Self::Agfl => Fields {
                crc: offset_of!(RawAgfl, crc),
                lsn: offset_of!(RawAgfl, lsn),
                uuid: offset_of!(RawAgfl, uuid),
            },
            Self::GroupTree(_) => Fields { crc: 52, lsn: 24, uuid: 32 },
            Self::ForkTree(_) => Fields { crc: 64, lsn: 32, uuid: 40 },
            Self::Space(_) => Fields { crc: 4, lsn: 24, uuid: 32 },
            Self::DirData | Self::DirFree => Fields { crc: 4, lsn: 16, uuid: 24 },
            Self::DirLeaf | Self::Node | Self::AttrLeaf => Fields { crc: 12, lsn: 24, uuid: 32 },
            Self::Symlink => Fields {
                crc: symlink::CRC_OFFSET,
                lsn: offset_of!(symlink::RawHeader, lsn),
                uuid: offset_of!(symlink::RawHeader, uuid),
            },
        }
    }

    /// Writes the LSN of the last change into a block, and seals it.
    pub(super) fn stamp(self, geometry: &Geometry, lsn: Lsn, data: &mut [u8]) {
        let fields = self.fields(geometry);
        data[fields.lsn..fields.lsn + 8].copy_from_slice(&lsn.to_raw().to_be_bytes());
        checksum::seal(data, fields.crc);
    }

    /// Checks a block in its final state. `offset` is its byte offset on the device.
    pub(super) fn verify(self, geometry: &Geometry, offset: u64, data: &[u8]) -> Result<()> {
        let block = Block(offset >> geometry.block_log);
        self.check_len(geometry, data)?;
        let (ag, at) = geometry.locate(block);
        let layout = dir::DirLayout::new(geometry);
        let owner = |at| Ino(be64(data, at));
        match self {
            Self::Superblock if offset == 0 => {
                return Superblock::parse(data, u64::MAX).map(|_| ());
            }
            // Copies of the superblock are not read.
            Self::Superblock => {}
            Self::Agf | Self::Agi | Self::Agfl => {
                let within = (u64::from(at.0) << geometry.block_log)
                    + (offset & (geometry.block_size() as u64 - 1));
                let sector = self.sector();
                if within != (sector as u64) << geometry.sector_log {
                    let damage = Corruption::new("group header", "it has another location");
                    let expected = (sector as u64) << geometry.sector_log;
                    return Err(damage.mismatch(expected, within).at_block(block.0).into());
                }
                ag::verify_header(geometry, ag, sector, data)?;
            }
            Self::GroupTree(shape) => shape.verify(geometry, block, ag.0.into(), data)?,
            Self::ForkTree(shape) => {
                shape.verify(geometry, block, owner(FORK_TREE_OWNER).0, data)?;
            }
            Self::Space(file) => {
                if let Some(realtime) = geometry.realtime {
                    let layout = realtime.space(0);
                    layout.verify(geometry, (file, owner(SPACE_OWNER)), block, data)?;
                }
            }
            Self::DirData => {
                dir::verify(geometry, DirBlockKind::Data, (owner(DIR_OWNER), 0), block, data)?;
            }
            Self::DirFree => {
                let (free, _) = layout.free_at(be32(data, FREE_FIRST));
                let who = (owner(DIR_OWNER), free.0 as u32);
                dir::verify(geometry, DirBlockKind::Free, who, block, data)?;
            }
            Self::DirLeaf => {
                dir::verify(geometry, DirBlockKind::Leaf, (owner(DA_OWNER), 0), block, data)?;
            }
            // Nodes of directories have larger block addresses than those of attributes, which start at 0.
            Self::Node if is_dir_node(geometry, data) => {
                dir::verify(geometry, DirBlockKind::Leaf, (owner(DA_OWNER), 0), block, data)?;
            }
            Self::Node | Self::AttrLeaf => {
                attr::verify(geometry, owner(DA_OWNER).0, block, data)?;
            }
            Self::Symlink => {
                let owner = owner(offset_of!(symlink::RawHeader, owner));
                symlink::verify(geometry, owner, block, data)?;
            }
        }
        Ok(())
    }

    /// Returns the directory that a directory block belongs to, according to its owner field.
    pub(super) fn dir_owner(self, data: &[u8]) -> Option<Ino> {
        match self {
            Self::DirData | Self::DirFree => Some(Ino(be64(data, DIR_OWNER))),
            Self::DirLeaf | Self::Node => Some(Ino(be64(data, DA_OWNER))),
            _ => None,
        }
    }

    const fn sector(self) -> usize {
        match self {
            Self::Agf => ag::AGF_SECTOR as usize,
            Self::Agi => ag::AGI_SECTOR as usize,
            _ => ag::AGFL_SECTOR as usize,
        }
    }

    fn check_len(self, geometry: &Geometry, data: &[u8]) -> Result<()> {
        let expected = match self {
            Self::Superblock | Self::Agf | Self::Agi | Self::Agfl => geometry.sector_size(),
            Self::GroupTree(_) | Self::ForkTree(_) | Self::Space(_) | Self::AttrLeaf => {
                geometry.block_size()
            }
            Self::DirData | Self::DirFree | Self::DirLeaf => geometry.dir_block_size(),
            Self::Node if is_dir_node(geometry, data) => geometry.dir_block_size(),
            Self::Node => geometry.block_size(),
            Self::Symlink => data.len().next_multiple_of(geometry.block_size()),
        };
        if data.len() == expected {
            return Ok(());
        }
        let damage = Corruption::new("log buffer item", "length of its buffer");
        Err(damage.mismatch(expected, data.len()).into())
    }
}

/// Returns whether a block is an attribute node, which is always one file-system block.
pub(super) fn is_attr_node(geometry: &Geometry, data: &[u8]) -> bool {
    matches!(Structure::of(data), Some(Structure::Node)) && !is_dir_node(geometry, data)
}

fn is_dir_node(geometry: &Geometry, data: &[u8]) -> bool {
    u64::from(be32(data, NODE_FIRST_CHILD)) >= dir::DirLayout::new(geometry).leaf_first().0
}

/// Returns the LSN in a block. `None` for blocks without one, of another file system, or with a wrong checksum.
pub(super) fn lsn_of(geometry: &Geometry, data: &[u8]) -> Option<Lsn> {
    let fields = Structure::of(data)?.fields(geometry);
    let lsn = stated_lsn(geometry, data)?;
    // A block torn in a write is replayed again.
    checksum::check("buffer", data, fields.crc).ok().map(|()| lsn)
}

/// Returns the LSN in a block of version 5, whatever its checksum. `None` for blocks without one or of another file
/// system.
pub(crate) fn stated_lsn(geometry: &Geometry, data: &[u8]) -> Option<Lsn> {
    let fields = Structure::of(data)?.fields(geometry);
    let lsn = be64(data, fields.lsn);
    let is_stated =
        lsn != 0 && lsn != u64::MAX && data[fields.uuid..fields.uuid + 16] == geometry.meta_uuid;
    is_stated.then(|| Lsn::from_raw(lsn))
}
