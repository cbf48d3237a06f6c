//! The path from the root of a tree to the leaf of a file block.

use operations::Outcome;
use std::ops::Range;

use engine::BufferId;
use smallvec::SmallVec;

use super::ExtentTree;
use super::step::{Child, FILE_BLOCKS_MAX, root};
use crate::format::address::FileBlock;
use crate::format::extent::{DEPTH_MAX, ExtentNode};
use crate::kind::BlockKind;

/// A node on the path, and the entry taken in it.
#[derive(Clone, Copy)]
pub(super) struct PathNode {
    /// `None` for the root in the inode.
    pub(super) buffer: Option<BufferId>,
    pub(super) depth: u16,
    /// Position of the last entry at or before the block searched for.
    pub(super) position: Option<usize>,
    /// First block of the file that the node may map.
    pub(super) start: FileBlock,
    /// End of the range that the node may map, exclusive.
    pub(super) end: u64,
}

impl PathNode {
    /// Returns the position of the entry that leads down.
    pub(super) fn taken(&self) -> usize {
        self.position.unwrap_or(0)
    }
}

/// Nodes from the root to a leaf. Their buffers stay held. A path is valid until the tree changes.
pub(super) type ExtentPath = SmallVec<[PathNode; DEPTH_MAX as usize + 1]>;

impl ExtentTree<'_, '_> {
    /// Returns the path to the leaf where `block` is or would be.
    pub(super) fn path_to(&mut self, block: FileBlock) -> Outcome<ExtentPath> {
        let root = root(self.file)?;
        let mut path = ExtentPath::new();
        let mut frame = PathNode {
            buffer: None,
            depth: root.depth(),
            position: root.position(block),
            start: FileBlock(0),
            end: FILE_BLOCKS_MAX,
        };
        let mut child = child_of(&root, &frame);
        path.push(frame);
        while let Some(down) = child {
            (frame, child) = self.enter(down, block)?;
            path.push(frame);
        }
        Ok(path)
    }

    /// Holds a child node. Returns its frame and the child below it on the path to `block`.
    pub(super) fn enter(
        &mut self,
        child: Child,
        block: FileBlock,
    ) -> Outcome<(PathNode, Option<Child>)> {
        child.check(&self.op.fs.volume, self.file)?;
        let id = self.op.buffer(child.leaf, BlockKind::ExtentNode.of(self.file.owner))?;
        let node = child.node(self.file, self.op.txn.data(id))?;
        let position = node.position(block);
        let Child { depth, start, end, .. } = child;
        let frame = PathNode { buffer: Some(id), depth, position, start, end };
        Ok((frame, child_of(&node, &frame)))
    }

    /// Returns a node of a path.
    pub(super) fn node<'n>(&'n self, frame: &PathNode) -> Outcome<ExtentNode<'n>> {
        ExtentNode::trusted(self.node_bytes(frame), frame.depth)
            .map_err(|c| c.of_inode(self.file.ino().0).into())
    }

    /// Returns the bytes of a node.
    pub(super) fn node_bytes<'n>(&'n self, frame: &PathNode) -> &'n [u8] {
        match frame.buffer {
            Some(id) => self.op.txn.data(id),
            None => self.file.inode.i_block(),
        }
    }

    /// Returns bytes of a node for editing.
    pub(super) fn edit_node<'n>(
        &'n mut self,
        frame: &PathNode,
        range: Range<usize>,
    ) -> &'n mut [u8] {
        match frame.buffer {
            Some(id) => self.op.txn.edit(id, range),
            None => &mut self.file.inode.i_block_mut()[range],
        }
    }

    /// Returns the number of entries of a node and its capacity. Also works for an index node that is temporarily
    /// empty.
    pub(super) fn fill_of(&self, frame: &PathNode) -> (usize, usize) {
        let bytes = self.node_bytes(frame);
        let number = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        (number(2), number(4))
    }

    /// Sets the number of entries of a node.
    pub(super) fn set_entries(&mut self, frame: &PathNode, count: usize) {
        self.edit_node(frame, 2..4).copy_from_slice(&(count as u16).to_le_bytes());
    }
}

fn child_of(node: &ExtentNode<'_>, frame: &PathNode) -> Option<Child> {
    (node.depth() > 0).then(|| Child::at(node, frame.taken(), frame.end))
}
