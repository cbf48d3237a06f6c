//! What is asked of the allocator, and what is given back to it.

use crate::format::address::FsBlock;

/// The owner of blocks, as the reverse map says it (`rm_owner` and `rm_offset`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A block of a fork, from logical block `offset` on.
    Fork { ino: vfs::Ino, fork: crate::format::inode::Fork, offset: u64, unwritten: bool },
    /// A block of the tree that maps a fork.
    Bmbt { ino: vfs::Ino, fork: crate::format::inode::Fork },
    /// Trees of inodes (`XFS_RMAP_OWN_INOBT`).
    InodeTrees,
    /// Inode chunks (`XFS_RMAP_OWN_INODES`).
    Inodes,
    /// The tree of references (`XFS_RMAP_OWN_REFC`).
    RefcountTree,
    /// Trees of free space, reverse map and the AGFL (`XFS_RMAP_OWN_AG`).
    Ag,
    /// Blocks kept for copying on write (`XFS_RMAP_OWN_COW`).
    Staged,
}

/// A request for an extent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExtentRequest {
    /// The best place. A place near it will do.
    pub(crate) near: FsBlock,
    /// Fewest blocks that are of use, at least 1.
    pub(crate) min_len: u32,
    /// Most blocks wanted.
    pub(crate) max_len: u32,
    /// The owner of the blocks.
    pub(crate) owner: Owner,
    /// Whether the blocks are for file data, which goes straight to the device.
    pub(crate) for_data: bool,
}

/// A run of blocks to be given back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freed {
    pub(crate) start: FsBlock,
    pub(crate) len: u32,
    pub(crate) owner: Owner,
}
