//! Addresses. Each kind is its own type, so that they cannot be mixed up.
//!
//! On disk, blocks are named in two ways: relative to their allocation group ([`AgBlock`]) in what
//! belongs to the group, and by group and block packed into one number ([`FsBlock`]) in what belongs
//! to files. The engine counts blocks from the start of the device ([`Block`]).

use std::fmt;

/// A block counted from the start of the device: block 0 starts at byte 0 of the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub u64);

/// A block as files' maps name it (`xfs_fsblock_t`): the group in the bits from `agblklog` on, the
/// block within the group below. Neighbouring groups' blocks are not neighbouring numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FsBlock(pub u64);

/// A block within its allocation group (`xfs_agblock_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgBlock(pub u32);

/// A logical block within a file or a fork (`xfs_fileoff_t`), below 2^54.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileBlock(pub u64);

/// An allocation group (`xfs_agnumber_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgNumber(pub u32);

/// An inode within its allocation group (`xfs_agino_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgIno(pub u32);

impl AgBlock {
    /// "No block", where the format has no other way to say so (`NULLAGBLOCK`).
    pub const NULL: Self = Self(u32::MAX);
}

impl AgIno {
    /// "No inode" (`NULLAGINO`).
    pub const NULL: Self = Self(u32::MAX);
}

impl FsBlock {
    /// The block `count` blocks on in the same group.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }
}

impl FileBlock {
    /// One past the last block a file can have.
    pub const END: Self = Self(1 << 54);

    /// The block `count` blocks on. Saturates, so that a hostile sum stays out of every range.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }
}

macro_rules! display_as_number {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

display_as_number!(Block FsBlock AgBlock FileBlock AgNumber AgIno);
