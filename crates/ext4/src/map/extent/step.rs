//! One step down an extent tree, and the checks that go with it.
//!
//! Reading and changing a tree both go down by these steps. A node must have the depth that its
//! parent calls for, so a loop of blocks ends; and it must lie in the part of the file that its
//! parent gives it, so that no two entries can share one: the work of going through a file is
//! bounded by the nodes that there are.

use vfs::Result;

use crate::format::address::{Block, FileBlock};
use crate::format::extent::{Extent, Node};
use crate::inode::Handle;
use crate::volume::Volume;

/// One past the last block a file can have.
pub(crate) const FILE_BLOCKS_MAX: u64 = 1 << 32;

/// A node that an entry leads to, and the part of the file that it must lie in.
#[derive(Clone, Copy)]
pub(crate) struct Child {
    pub(crate) leaf: Block,
    pub(crate) depth: u16,
    /// Its first entry starts here or later.
    pub(crate) start: FileBlock,
    /// Its last entry ends here or before.
    pub(crate) end: u64,
}

/// Where a node leads in the search for a block.
pub(crate) enum Step {
    /// To this extent, which covers the block.
    Extent(Extent),
    /// Nowhere: nothing is mapped before this block of the file.
    Hole(u64),
    /// One level down.
    Down(Child),
}

/// The root of a file's tree.
pub(crate) fn root(handle: &Handle) -> Result<Node<'_>> {
    Node::parse(handle.inode.i_block(), None).map_err(|c| c.of_inode(handle.ino().0).into())
}

impl Child {
    /// The child at entry `at` of a node that holds what lies before `end`.
    pub(crate) fn at(node: &Node<'_>, at: usize, end: u64) -> Self {
        let entry = node.index(at);
        let end = node.first_block(at + 1).map_or(end, |next| u64::from(next.0).min(end));
        Self { leaf: entry.leaf, depth: node.depth().saturating_sub(1), start: entry.block, end }
    }

    /// Checks that it can be read at all.
    pub(crate) fn check(&self, volume: &Volume, handle: &Handle) -> Result<()> {
        check_blocks(volume, handle, self.leaf, 1)
    }

    /// The node in its block, whose bytes were verified as those of an extent tree node.
    pub(crate) fn node<'n>(&self, handle: &Handle, bytes: &'n [u8]) -> Result<Node<'n>> {
        let in_place = |node: Node<'n>| node.check_range(self.start, self.end).map(|()| node);
        Node::trusted(bytes, self.depth)
            .and_then(in_place)
            .map_err(|c| c.at_block(self.leaf.0).of_inode(handle.ino().0).into())
    }
}

/// Looks for `block` in a node that holds what lies before `end`.
pub(crate) fn step(node: &Node<'_>, block: FileBlock, end: u64) -> Step {
    let at = node.position(block);
    let next = at.map_or(0, |at| at + 1);
    let next = node.first_block(next).map_or(end, |first| u64::from(first.0).min(end));
    let Some(at) = at else { return Step::Hole(next) };
    if node.depth() > 0 {
        return Step::Down(Child::at(node, at, end));
    }
    let extent = node.extent(at);
    if u64::from(block.0) < extent.end() { Step::Extent(extent) } else { Step::Hole(next) }
}

/// Checks that blocks of a file lie where files can have blocks.
pub(crate) fn check_blocks(volume: &Volume, handle: &Handle, start: Block, len: u64) -> Result<()> {
    volume.check_blocks(start, len).map_err(|c| c.of_inode(handle.ino().0).into())
}
