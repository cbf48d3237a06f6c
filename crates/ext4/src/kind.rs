//! The kinds of metadata blocks: how each is verified and sealed.

use transaction::{Corruption, Tag};

use crate::format::address::Block;
use crate::format::htree::Place;
use crate::format::inode::Owner;
use crate::format::{dirent, extent, group, htree, indirect, orphan, superblock, xattr};
use crate::volume::Volume;

/// A kind of metadata block. Its number is the [`Tag`]'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Group descriptors, checked one by one.
    Descriptors,
    /// Part of an inode table; inodes are checked one by one.
    InodeTable,
    /// Directory entries.
    DirectoryLeaf,
    /// The root of a directory's index.
    HtreeRoot,
    /// A node of a directory's index.
    HtreeNode,
    /// A node of an extent tree.
    ExtentNode,
    /// Pointers to blocks.
    Indirect,
    /// Extended attributes.
    Xattr,
    /// A block bitmap; the owner is the group.
    BlockBitmap,
    /// An inode bitmap; the owner is the group.
    InodeBitmap,
    /// A block of the orphan file.
    Orphan,
    /// The block that the primary superblock lies in.
    Superblock,
    /// Blocks of a quota file, which carry no checksum.
    Quota,
}

impl Kind {
    const ALL: [Self; 13] = [
        Self::Descriptors,
        Self::InodeTable,
        Self::DirectoryLeaf,
        Self::HtreeRoot,
        Self::HtreeNode,
        Self::ExtentNode,
        Self::Indirect,
        Self::Xattr,
        Self::BlockBitmap,
        Self::InodeBitmap,
        Self::Orphan,
        Self::Superblock,
        Self::Quota,
    ];

    /// The tag of a block that belongs to no one.
    pub(crate) const fn plain(self) -> Tag {
        Tag { kind: self as u8, seed: 0, owner: 0 }
    }

    /// The tag of a block that belongs to an inode.
    pub(crate) const fn of(self, owner: Owner) -> Tag {
        Tag { kind: self as u8, seed: owner.seed, owner: owner.ino.0 }
    }

    /// The tag of a group's bitmap.
    pub(crate) const fn of_group(self, group: u32) -> Tag {
        Tag { kind: self as u8, seed: 0, owner: group as u64 }
    }

    fn from_tag(tag: Tag) -> Self {
        Self::ALL.get(usize::from(tag.kind)).copied().unwrap_or(Self::Descriptors)
    }
}

/// Checks a block that was just read.
pub(crate) fn verify(
    volume: &Volume,
    tag: Tag,
    block: Block,
    data: &[u8],
) -> Result<(), Corruption> {
    let seed = volume.checksums.then_some(tag.seed);
    let of_inode = |c: Corruption| c.of_inode(tag.owner);
    match Kind::from_tag(tag) {
        Kind::Descriptors | Kind::InodeTable | Kind::Quota => Ok(()),
        Kind::Indirect => indirect::verify(data, volume.geometry.blocks_count).map_err(of_inode),
        Kind::DirectoryLeaf => {
            dirent::verify(data, volume.geometry.inodes_count, seed).map_err(of_inode)
        }
        Kind::HtreeRoot => htree::verify(data, Place::Root, seed).map_err(of_inode),
        Kind::HtreeNode => htree::verify(data, Place::Node, seed).map_err(of_inode),
        Kind::ExtentNode => extent::verify(data, seed).map_err(of_inode),
        Kind::Xattr => {
            let seed = volume.checksums.then_some(volume.sb.checksum_seed);
            xattr::verify_block(data, block, seed)
        }
        Kind::BlockBitmap | Kind::InodeBitmap => verify_bitmap(volume, tag, data),
        Kind::Orphan => orphan::parse(data, block, seed).map(drop).map_err(of_inode),
        Kind::Superblock => superblock::verify(&data[volume.superblock_place().1]),
    }
}

fn verify_bitmap(volume: &Volume, tag: Tag, data: &[u8]) -> Result<(), Corruption> {
    let stored = volume.groups.bitmap_checksums(tag.owner as u32);
    let (name, computed, stored) = if Kind::from_tag(tag) == Kind::BlockBitmap {
        ("block bitmap", group::block_bitmap_checksum(data, &volume.sb), stored.0)
    } else {
        ("inode bitmap", group::inode_bitmap_checksum(data, &volume.sb), stored.1)
    };
    group::check_bitmap(name, computed, stored, &volume.sb).map_err(|c| c.in_group(tag.owner))
}

/// Brings the checksum of a block up to date.
pub(crate) fn seal(volume: &Volume, tag: Tag, block: Block, data: &mut [u8]) {
    if !volume.checksums {
        return;
    }
    match Kind::from_tag(tag) {
        Kind::DirectoryLeaf => dirent::seal(data, tag.seed),
        Kind::HtreeRoot => htree::seal(data, Place::Root, tag.seed),
        Kind::HtreeNode => htree::seal(data, Place::Node, tag.seed),
        Kind::ExtentNode => extent::seal(data, tag.seed),
        Kind::Xattr => xattr::seal_block(data, block, volume.sb.checksum_seed),
        Kind::Orphan => orphan::seal(data, block, Some(tag.seed)),
        Kind::Superblock => superblock::seal(&mut data[volume.superblock_place().1]),
        // The checksums of bitmaps stand in the descriptors, those of inodes in the inodes.
        Kind::Descriptors
        | Kind::InodeTable
        | Kind::Indirect
        | Kind::BlockBitmap
        | Kind::InodeBitmap
        | Kind::Quota => {}
    }
}
