//! Reading: inodes, file data, directories, symbolic links and extended attributes.
//!
//! Everything here is generic over [`Blocks`], which hands out verified metadata blocks. Code relies
//! on that verification for its results but not for its safety: offsets are still checked, and every
//! loop is bounded by what the inode maps, never by what a field claims.
//!
//! At most one block is held at a time, and none while a callback runs.

pub(crate) mod casefold;
pub(crate) mod directory;
pub(crate) mod file;
pub(crate) mod index;
pub(crate) mod inline;
pub(crate) mod inode;
pub(crate) mod listing;
pub(crate) mod map;
pub(crate) mod names;
pub(crate) mod xattr;

use std::ops::Deref;

use vfs::Result;

use crate::format::address::{Block, Group};
use crate::format::geometry::Geometry;
use crate::format::inode::Owner;
use crate::format::superblock::Superblock;
pub(crate) use crate::kind::Kind;

/// A file system that can be read.
pub(crate) trait Blocks {
    /// A block held for reading.
    type Ref<'a>: Deref<Target = [u8]>
    where
        Self: 'a;

    /// The superblock.
    fn superblock(&self) -> &Superblock;

    /// The geometry.
    fn geometry(&self) -> &Geometry;

    /// First block of a group's inode table.
    fn inode_table(&self, group: Group) -> Result<Block>;

    /// The metadata block `block`, verified as `kind`. It belongs to `owner`, unless it is part of
    /// an inode table or holds extended attributes.
    fn block(&self, block: Block, kind: Kind, owner: Owner) -> Result<Self::Ref<'_>>;

    /// Reads file data from byte `offset` of the device.
    fn data(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Block size in bytes.
    fn block_size(&self) -> usize {
        self.geometry().block_size() as usize
    }
}
