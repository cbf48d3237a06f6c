//! Addresses. Each kind is its own type, so that they cannot be confused.
//!
//! On disk, blocks are addressed in two ways. Structures of an allocation group use numbers relative to the group
//! ([`AgBlock`]). Structures of files use group and block packed into one number ([`FsBlock`]). The engine counts
//! blocks from the start of the device ([`Block`]).

use std::fmt;

/// A block counted from the start of the device: block 0 starts at byte 0 of the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub u64);

/// A block as in extent maps (`xfs_fsblock_t`): the group in the bits from `agblklog` up, the block within the group
/// below. Numbers of adjacent groups are not contiguous.
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
    /// "No block", in fields without another null value (`NULLAGBLOCK`).
    pub(crate) const NULL: Self = Self(u32::MAX);
}

impl AgIno {
    /// "No inode" (`NULLAGINO`).
    pub(crate) const NULL: Self = Self(u32::MAX);
}

impl FsBlock {
    /// Marks a block of the realtime device. Addresses in extent maps have 52 bits.
    const REALTIME: u64 = 1 << 63;

    /// Returns the address of a block of the realtime device, by its number there. It exists in memory only.
    #[must_use]
    pub(crate) const fn on_realtime(block: u64) -> Self {
        Self(block | Self::REALTIME)
    }

    /// Returns the number of the block on the realtime device; `None` for a block of the data device.
    #[must_use]
    pub(crate) const fn realtime(self) -> Option<u64> {
        if self.0 & Self::REALTIME == 0 { None } else { Some(self.0 & !Self::REALTIME) }
    }

    /// Returns the block `count` blocks further in the same group.
    #[must_use]
    pub(crate) const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }
}

impl FileBlock {
    /// One past the last block that a file can have.
    pub const END: Self = Self(1 << 54);

    /// Returns the block `count` blocks further. Saturates, so that overflows from damaged images are outside of every
    /// valid range.
    #[must_use]
    pub(crate) const fn plus(self, count: u64) -> Self {
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
