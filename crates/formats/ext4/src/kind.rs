//! The kinds of metadata blocks and their tags.

use engine::Tag;

use crate::format::inode::BlockOwner;

/// Kind of a metadata block. Its number is stored in [`Tag`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum BlockKind {
    /// Group descriptors. Each one is checked separately.
    Descriptors,
    /// Part of an inode table. Each inode is checked separately.
    InodeTable,
    /// Directory entries.
    DirectoryLeaf,
    /// The root of a directory's index.
    HtreeRoot,
    /// A node of a directory's index.
    HtreeNode,
    /// A node of an extent tree.
    ExtentNode,
    /// Block pointers of an indirect block map.
    Indirect,
    /// Extended attributes.
    Xattr,
    /// A block bitmap. The owner is the group.
    BlockBitmap,
    /// An inode bitmap. The owner is the group.
    InodeBitmap,
    /// A block of the orphan file.
    Orphan,
    /// The block that contains the primary superblock.
    Superblock,
    /// Block of a quota file, without a checksum.
    Quota,
}

impl BlockKind {
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

    /// Returns the tag of a block without an owner.
    pub(crate) const fn plain(self) -> Tag {
        Tag { kind: self as u8, seed: 0, owner: 0 }
    }

    /// Returns the tag of a block that belongs to an inode.
    pub(crate) const fn of(self, owner: BlockOwner) -> Tag {
        Tag { kind: self as u8, seed: owner.seed, owner: owner.ino.0 }
    }

    /// Returns the tag of a group's bitmap.
    pub(crate) const fn of_group(self, group: u32) -> Tag {
        Tag { kind: self as u8, seed: 0, owner: group as u64 }
    }

    /// Returns the kind of a tag.
    pub(crate) fn from_tag(tag: Tag) -> Self {
        Self::ALL.get(usize::from(tag.kind)).copied().unwrap_or(Self::Descriptors)
    }
}
