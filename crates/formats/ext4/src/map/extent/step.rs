//! One step down an extent tree, with its checks.
//!
//! Readers and writers of a tree descend by these steps. A node must have the depth that its parent implies, so cycles
//! end. It must also be within the range of the file that its parent assigns to it, so no two entries can share a node.
//! The work for a whole file is therefore bounded by the number of nodes.

use vfs::Result;

use crate::format::address::{Block, FileBlock};
use crate::format::extent::{Extent, ExtentNode};
use crate::inode::Handle;
use crate::volume::Volume;

/// One past the largest block number of a file.
pub(crate) const FILE_BLOCKS_MAX: u64 = 1 << 32;

/// A node that an entry refers to, and the range of the file that it may map.
#[derive(Clone, Copy)]
pub(crate) struct Child {
    pub(crate) leaf: Block,
    pub(crate) depth: u16,
    /// First block that its entries may map.
    pub(crate) start: FileBlock,
    /// End of the range that its entries may map, exclusive.
    pub(crate) end: u64,
}

/// Result of searching a node for a block.
pub(crate) enum SearchStep {
    /// This extent covers the block.
    Extent(Extent),
    /// A hole up to this block of the file.
    Hole(u64),
    /// The search continues one level down.
    Down(Child),
}

/// Returns the root of a file's tree.
pub(crate) fn root(handle: &Handle) -> Result<ExtentNode<'_>> {
    ExtentNode::parse(handle.inode.i_block(), None).map_err(|c| c.of_inode(handle.ino().0).into())
}

impl Child {
    /// Returns the child at entry `at` of a node whose range ends at `end`.
    pub(crate) fn at(node: &ExtentNode<'_>, at: usize, end: u64) -> Self {
        let entry = node.index(at);
        let end = node.first_block(at + 1).map_or(end, |next| u64::from(next.0).min(end));
        Self { leaf: entry.leaf, depth: node.depth().saturating_sub(1), start: entry.block, end }
    }

    /// Checks that its block number is valid.
    pub(crate) fn check(&self, volume: &Volume, handle: &Handle) -> Result<()> {
        check_blocks(volume, handle, self.leaf, 1)
    }

    /// Parses the node in its block, whose bytes were verified as an extent tree node.
    pub(crate) fn node<'n>(&self, handle: &Handle, bytes: &'n [u8]) -> Result<ExtentNode<'n>> {
        let in_place = |node: ExtentNode<'n>| node.check_range(self.start, self.end).map(|()| node);
        ExtentNode::trusted(bytes, self.depth)
            .and_then(in_place)
            .map_err(|c| c.at_block(self.leaf.0).of_inode(handle.ino().0).into())
    }
}

/// Searches for `block` in a node whose range ends at `end`.
pub(crate) fn step(node: &ExtentNode<'_>, block: FileBlock, end: u64) -> SearchStep {
    let at = node.position(block);
    let next = at.map_or(0, |at| at + 1);
    let next = node.first_block(next).map_or(end, |first| u64::from(first.0).min(end));
    let Some(at) = at else { return SearchStep::Hole(next) };
    if node.depth() > 0 {
        return SearchStep::Down(Child::at(node, at, end));
    }
    let extent = node.extent(at);
    if u64::from(block.0) < extent.end() {
        SearchStep::Extent(extent)
    } else {
        SearchStep::Hole(next)
    }
}

/// Checks that the blocks of a file are in the area for file blocks.
pub(crate) fn check_blocks(volume: &Volume, handle: &Handle, start: Block, len: u64) -> Result<()> {
    volume.check_blocks(start, len).map_err(|c| c.of_inode(handle.ino().0).into())
}
