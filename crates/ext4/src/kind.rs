//! The kinds of metadata blocks, and the tags by which blocks of each are read.

use transaction::Tag;

use crate::format::inode::Owner;

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
    /// All kinds, by number.
    pub(crate) const ALL: [Self; 13] = [
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

    /// The kind that a tag names.
    pub(crate) fn from_tag(tag: Tag) -> Self {
        Self::ALL.get(usize::from(tag.kind)).copied().unwrap_or(Self::Descriptors)
    }
}
