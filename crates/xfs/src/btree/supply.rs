//! What a tree asks of its owner: where it is anchored, and a supply of blocks.
//!
//! The tree code allocates nothing by itself. The owner of a tree decides where its blocks come from:
//! an allocation group feeds its trees from the AGFL or from free space, a file allocates for its map.

use operation::Outcome;
use transaction::Txn;
use vfs::{Ino, Result};

use super::Tree;
use crate::format::address::AgNumber;
use crate::format::geometry::Geometry;

/// Who owns a tree. It decides what the pointers of the tree count in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TreeOwner {
    /// An allocation group. Pointers are blocks of the group.
    Group(AgNumber),
    /// An inode, for the map of one of its forks. Pointers are blocks of the file system.
    Inode(Ino),
}

/// The root of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TreeRoot<'t> {
    /// The root is a block.
    Block {
        /// The block, as pointers name it.
        block: u64,
        /// Levels of the tree: 1 if the root is a leaf.
        levels: u8,
    },
    /// The root is the fork of an inode.
    Fork(&'t [u8]),
}

/// Where a tree is anchored: the header of a group, or a fork of an inode. `'a` is the life of the
/// transaction that holds the tree's blocks.
pub(crate) trait Anchor<'a, T: Tree> {
    fn geometry(&self) -> &'a Geometry;

    /// The transaction that holds the blocks of the tree.
    fn txn(&self) -> &Txn<'a>;

    fn txn_mut(&mut self) -> &mut Txn<'a>;

    fn owner(&self) -> TreeOwner;

    fn root(&self) -> TreeRoot<'_>;

    /// Moves the root to another block. The tree asks for it only if its root is a block.
    fn set_root(&mut self, block: u64, levels: u8);

    /// The bytes of a root in a fork; none if the root is a block.
    fn fork_mut(&mut self) -> &mut [u8];

    /// Counts a block that the tree has gained (`is_more`) or lost.
    ///
    /// # Errors
    /// `Corrupt` if the count would fall below zero.
    fn count_block(&mut self, is_more: bool) -> Result<()>;
}

/// Where a tree that changes gets its blocks from.
pub(crate) trait Supply<'a, T: Tree>: Anchor<'a, T> {
    /// Allocates a block for the tree, close to the block `near` of the tree if there is a choice.
    /// Returns the block as pointers name it.
    ///
    /// # Errors
    /// `NoSpace` if there is none left.
    fn allocate_block(&mut self, near: u64) -> Outcome<u64>;

    /// Frees a block of the tree. The transaction has forgotten its contents already.
    fn free_block(&mut self, block: u64) -> Outcome<()>;
}
