//! Kinds of metadata blocks. Each block is verified when it is read, and verified and sealed before it is written. Both
//! use the same structural verifier. Reading also checks the checksum; writing also checks the contents of the changed
//! pieces.

#[cfg(test)]
mod tests;

use engine::{Changed, Corruption, Tag};
use vfs::{Error, Ino};

use crate::XfsCore;
use crate::format::address::{AgNumber, Block};
use crate::format::btree::TreeShape;
use crate::format::geometry::Geometry;
use crate::format::realtime::space::SpaceFile;
use crate::format::{ag, attr, checksum, dir, inode, quota, symlink};

/// A kind of metadata block. Its discriminant is the [`Tag`]'s `kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum BlockKind {
    /// Superblock, AGF, AGI and AGFL, or those of them in this block. The owner is the group.
    AgHeader,
    /// Inodes, each checked when it is loaded.
    Inodes,
    /// Free-space tree by block. The owner is the group, as for all trees up to `FinoBtree`.
    BnoBtree,
    /// Free-space tree by length.
    CntBtree,
    /// Reverse-mapping tree.
    RmapBtree,
    /// Reference-count tree of shared blocks.
    RefcountBtree,
    /// Tree of inode chunks.
    InoBtree,
    /// Tree of inode chunks with free inodes.
    FinoBtree,
    /// A block of a fork's extent map tree. The owner is the inode, as for all kinds below.
    Bmbt,
    /// A directory data block, in block or data form according to its magic number. The seed is the logical block, as
    /// for all following kinds.
    DirData,
    /// A directory leaf or node.
    DirLeaf,
    /// A block of a directory's free-space index.
    DirFree,
    /// A leaf or node of attributes.
    AttrLeaf,
    /// A remote attribute value.
    AttrRemote,
    /// The target of a symbolic link.
    Symlink,
    /// One file-system block of a larger directory block. The directory block is verified and sealed as a whole.
    Part,
    /// Records of quotas. The seed is the logical block.
    Dquots,
    /// A block of the realtime bitmap.
    RealtimeBitmap,
    /// A block of the realtime summary.
    RealtimeSummary,
    /// Reverse map of a realtime group. The owner is the inode with its root.
    RtRmapBtree,
    /// Reference counts of a realtime group.
    RtRefcountBtree,
    /// Any contents: a block written by a repair, already verified and sealed by another engine.
    Raw,
}

impl BlockKind {
    const ALL: [Self; 22] = [
        Self::AgHeader,
        Self::Inodes,
        Self::BnoBtree,
        Self::CntBtree,
        Self::RmapBtree,
        Self::RefcountBtree,
        Self::InoBtree,
        Self::FinoBtree,
        Self::Bmbt,
        Self::DirData,
        Self::DirLeaf,
        Self::DirFree,
        Self::AttrLeaf,
        Self::AttrRemote,
        Self::Symlink,
        Self::Part,
        Self::Dquots,
        Self::RealtimeBitmap,
        Self::RealtimeSummary,
        Self::RtRmapBtree,
        Self::RtRefcountBtree,
        Self::Raw,
    ];

    /// Returns the tag of a block of inodes.
    pub(crate) const fn plain(self) -> Tag {
        Tag { kind: self as u8, seed: 0, owner: 0 }
    }

    /// Returns the tag of a block that belongs to a group.
    pub(crate) const fn of_group(self, ag: AgNumber) -> Tag {
        Tag { kind: self as u8, seed: 0, owner: ag.0 as u64 }
    }

    /// Returns the tag of a block that belongs to an inode. `at` is the low 32 bits of the block's logical block number
    /// in its fork.
    pub(crate) const fn of_inode(self, ino: Ino, at: u32) -> Tag {
        Tag { kind: self as u8, seed: at, owner: ino.0 }
    }

    /// Returns the shape of the tree whose blocks have this kind, if any.
    const fn btree(self) -> Option<TreeShape> {
        Some(match self {
            Self::BnoBtree => TreeShape::BNO,
            Self::CntBtree => TreeShape::CNT,
            Self::RmapBtree => TreeShape::RMAP,
            Self::RefcountBtree => TreeShape::REFCOUNT,
            Self::InoBtree => TreeShape::INO,
            Self::FinoBtree => TreeShape::FINO,
            Self::Bmbt => TreeShape::BMBT,
            Self::RtRmapBtree => TreeShape::RTRMAP,
            Self::RtRefcountBtree => TreeShape::RTREFCOUNT,
            _ => return None,
        })
    }

    /// Returns the file of the realtime section that has blocks of this kind, if any.
    const fn space_file(self) -> Option<SpaceFile> {
        match self {
            Self::RealtimeBitmap => Some(SpaceFile::Bitmap),
            Self::RealtimeSummary => Some(SpaceFile::Summary),
            _ => None,
        }
    }

    /// Returns the part of a directory's address space that has blocks of this kind, if any.
    const fn dir_part(self) -> Option<dir::DirBlockKind> {
        Some(match self {
            Self::DirData => dir::DirBlockKind::Data,
            Self::DirLeaf => dir::DirBlockKind::Leaf,
            Self::DirFree => dir::DirBlockKind::Free,
            _ => return None,
        })
    }

    /// Returns the kind of a tag.
    pub(crate) fn from_tag(tag: Tag) -> Self {
        Self::ALL.get(usize::from(tag.kind)).copied().unwrap_or(Self::Part)
    }
}

/// Checks a block that was just read.
pub(crate) fn verify(
    geometry: &Geometry,
    tag: Tag,
    block: Block,
    data: &[u8],
) -> Result<(), Corruption> {
    if let Some(part) = BlockKind::from_tag(tag).dir_part() {
        return dir::verify(geometry, part, (Ino(tag.owner), tag.seed), block, data);
    }
    if let (Some(file), Some(realtime)) = (BlockKind::from_tag(tag).space_file(), geometry.realtime)
    {
        return realtime.space(0).verify(geometry, (file, Ino(tag.owner)), block, data);
    }
    match BlockKind::from_tag(tag) {
        BlockKind::AgHeader => {
            let (ag, at) = geometry.locate(block);
            ag::verify(geometry, ag, at.0, data)
        }
        BlockKind::AttrLeaf => attr::verify(geometry, tag.owner, block, data),
        BlockKind::AttrRemote => attr::remote::verify(geometry, tag.owner, block, data),
        BlockKind::Dquots => {
            quota::verify(first_record(geometry, tag), data).map_err(|c| c.of_inode(tag.owner))
        }
        BlockKind::Symlink if geometry.features.crc() => {
            symlink::verify(geometry, Ino(tag.owner), block, data).map(|_| ())
        }
        // Inode slots are checked whenever they are loaded; parts of directory blocks as a whole.
        kind => match kind.btree() {
            Some(shape) => shape.verify(geometry, block, tag.owner, data),
            None => Ok(()),
        },
    }
}

/// Checks a block that is about to be written, and updates its checksum.
pub(crate) fn seal(
    geometry: &Geometry,
    tag: Tag,
    block: Block,
    changed: Changed,
    data: &mut [u8],
) -> Result<(), Corruption> {
    verify_structure(geometry, tag, block, changed, data)?;
    match BlockKind::from_tag(tag) {
        BlockKind::AgHeader => {
            let (ag, at) = geometry.locate(block);
            ag::seal(geometry, ag, at.0, data);
        }
        BlockKind::Symlink if geometry.features.crc() => checksum::seal(data, symlink::CRC_OFFSET),
        // Each slot is sealed when it is changed, because it is verified at every load. Each record of quotas has a
        // separate checksum, which is set when the record is changed.
        BlockKind::Inodes | BlockKind::Dquots => {}
        BlockKind::AttrLeaf => attr::seal(geometry, data),
        BlockKind::AttrRemote => attr::remote::seal(geometry, data),
        kind => {
            if let Some(shape) = kind.btree() {
                shape.seal(geometry, data);
            }
            if let Some(part) = kind.dir_part() {
                dir::seal(geometry, part, data);
            }
            if let (Some(_), Some(realtime)) = (kind.space_file(), geometry.realtime) {
                realtime.space(0).seal(data);
            }
        }
    }
    Ok(())
}

/// Checks a block except for its checksum. Unlike [`verify`], it also checks the contents of the changed pieces: tree
/// records, inodes and group headers.
fn verify_structure(
    geometry: &Geometry,
    tag: Tag,
    block: Block,
    changed: Changed,
    data: &[u8],
) -> Result<(), Corruption> {
    let kind = BlockKind::from_tag(tag);
    if let Some(part) = kind.dir_part() {
        return dir::verify_structure(geometry, part, (Ino(tag.owner), tag.seed), block, data);
    }
    if let Some(shape) = kind.btree() {
        return shape.verify_structure(geometry, (block, tag.owner), changed, data);
    }
    if let (Some(file), Some(realtime)) = (kind.space_file(), geometry.realtime) {
        return realtime.space(0).verify_header(geometry, (file, Ino(tag.owner)), block, data);
    }
    match kind {
        BlockKind::AgHeader => {
            let (ag, at) = geometry.locate(block);
            ag::verify_structure(geometry, ag, at.0, changed, data)
        }
        BlockKind::Inodes => verify_inodes(geometry, block, changed, data),
        BlockKind::AttrLeaf => attr::verify_structure(geometry, tag.owner, block, data),
        BlockKind::AttrRemote => attr::remote::verify_structure(geometry, tag.owner, block, data),
        BlockKind::Dquots => quota::verify_structure(first_record(geometry, tag), data)
            .map_err(|c| c.of_inode(tag.owner)),
        BlockKind::Symlink if geometry.features.crc() => {
            symlink::verify_structure(geometry, Ino(tag.owner), block, data).map(drop)
        }
        // Parts were verified when the whole directory block was sealed.
        _ => Ok(()),
    }
}

/// Returns the identifier of the first record in a block of quotas.
fn first_record(geometry: &Geometry, tag: Tag) -> u32 {
    tag.seed.wrapping_mul(quota::per_block(geometry.block_size()))
}

/// Checks the inodes that changed.
fn verify_inodes(
    geometry: &Geometry,
    block: Block,
    changed: Changed,
    data: &[u8],
) -> Result<(), Corruption> {
    let size = geometry.inode_size();
    let (ag, ag_block) = geometry.locate(block);
    let first = geometry.ino(ag, geometry.first_ino(ag_block));
    for row in changed.rows(0, size, data.len() / size).flatten() {
        let slot = &data[row * size..(row + 1) * size];
        let ino = Ino(first.0 + row as u64);
        let Err(fault) = inode::verify_structure(geometry, ino, slot) else { continue };
        // A piece may span several slots, so perhaps only a neighbour changed. Slots that were written are sealed; an
        // invalid checksum means that this one was not.
        if changed.piece() > size && inode::verify_slot(geometry, ino, slot).is_err() {
            continue;
        }
        return Err(fault);
    }
    Ok(())
}

impl XfsCore {
    /// Stops all changes, because a structure that an operation was about to seal itself is invalid.
    pub(crate) fn refuse(&self, fault: Corruption) -> Error {
        self.engine.refuse_changes(&fault);
        fault.into()
    }
}
