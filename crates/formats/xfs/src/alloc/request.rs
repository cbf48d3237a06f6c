//! Requests to the allocator, and runs to be freed.

use crate::format::address::FsBlock;

/// The owner of blocks, as stored in the reverse map (`rm_owner` and `rm_offset`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RmapOwner {
    /// A block of a fork, from logical block `offset` on.
    Fork { ino: vfs::Ino, fork: crate::format::inode::Fork, offset: u64, unwritten: bool },
    /// A block of the extent map tree of a fork.
    Bmbt { ino: vfs::Ino, fork: crate::format::inode::Fork },
    /// Inode trees (`XFS_RMAP_OWN_INOBT`).
    InodeTrees,
    /// Inode chunks (`XFS_RMAP_OWN_INODES`).
    Inodes,
    /// The reference-count tree (`XFS_RMAP_OWN_REFC`).
    RefcountTree,
    /// Free-space trees, reverse map and AGFL (`XFS_RMAP_OWN_AG`).
    Ag,
    /// Blocks staged for copy on write (`XFS_RMAP_OWN_COW`).
    Staged,
}

/// A request for an extent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExtentRequest {
    /// The best place. A nearby place is acceptable.
    pub(crate) near: FsBlock,
    /// Number of blocks to leave free before the extent, from `near` on. If no run is so long, none are left.
    pub(crate) lead: u32,
    /// Minimum number of blocks, at least 1.
    pub(crate) min_len: u32,
    /// Maximum number of blocks.
    pub(crate) max_len: u32,
    /// The owner of the blocks.
    pub(crate) owner: RmapOwner,
    /// True if the blocks are for file data, which is written straight to the device.
    pub(crate) for_data: bool,
}

/// A run of blocks to be freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freed {
    pub(crate) start: FsBlock,
    pub(crate) len: u32,
    pub(crate) owner: RmapOwner,
}
