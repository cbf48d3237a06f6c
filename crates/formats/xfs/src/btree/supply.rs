//! The interfaces between a tree and its owner: its root, and its supply of blocks.
//!
//! The tree code itself allocates nothing. The owner of a tree decides where its blocks come from: an allocation group
//! supplies its trees from the AGFL or from free space, a file allocates blocks for its map.

use engine::Txn;
use operations::Outcome;
use vfs::{Ino, Result};

use super::Tree;
use crate::format::address::AgNumber;
use crate::format::geometry::Geometry;

/// The owner of a tree, which determines the unit of the tree's pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TreeOwner {
    /// An allocation group. Pointers are blocks of the group.
    Group(AgNumber),
    /// An inode, for the map of one of its forks. Pointers are file-system blocks.
    Inode(Ino),
}

/// The root of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TreeRoot<'t> {
    /// The root is a block.
    Block {
        /// The block, as in pointers.
        block: u64,
        /// Levels of the tree: 1 if the root is a leaf.
        levels: u8,
    },
    /// The root is in the fork of an inode.
    Fork(&'t [u8]),
}

/// The anchor of a tree: the header of a group, or a fork of an inode. `'a` is the lifetime of the transaction that
/// holds the tree's blocks.
pub(crate) trait Anchor<'a, T: Tree> {
    fn geometry(&self) -> &'a Geometry;

    /// Returns the transaction that holds the blocks of the tree.
    fn txn(&self) -> &Txn<'a>;

    fn txn_mut(&mut self) -> &mut Txn<'a>;

    fn owner(&self) -> TreeOwner;

    fn root(&self) -> TreeRoot<'_>;

    /// Moves the root to another block. Called only if the root is a block.
    fn set_root(&mut self, block: u64, levels: u8);

    /// Returns the bytes of a root in a fork; empty if the root is a block.
    fn fork_mut(&mut self) -> &mut [u8];

    /// Counts a block that the tree has gained (`is_more`) or lost.
    ///
    /// # Errors
    /// `Corrupt` if the count would become negative.
    fn count_block(&mut self, is_more: bool) -> Result<()>;
}

/// Supply of blocks for a tree that changes.
pub(crate) trait Supply<'a, T: Tree>: Anchor<'a, T> {
    /// Allocates a block for the tree, close to the block `near` of the tree if possible. Returns the block as in
    /// pointers.
    ///
    /// # Errors
    /// `NoSpace` if there is none left.
    fn allocate_block(&mut self, near: u64) -> Outcome<u64>;

    /// Frees a block of the tree. The transaction has already forgotten its contents.
    fn free_block(&mut self, block: u64) -> Outcome<()>;
}
