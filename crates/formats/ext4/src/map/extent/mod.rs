//! Extent trees: mapping of file blocks to device blocks.
//!
//! An inode's tree is read and changed only under the inode's lock. Every change of a leaf replaces some of its entries
//! by others (`replace`). Afterwards the tree satisfies the rules of the checkers: every index entry starts where the
//! node below it does, only the root may be empty, neighbouring nodes that fit into one node are merged, and a root
//! with one small child absorbs it.

mod cluster;
mod path;
mod provide;
mod remove;
mod replace;
mod room;
mod shrink;
pub(crate) mod step;

#[cfg(test)]
mod tests;

use crate::inode::Handle;
use crate::op::Op;

/// Extent tree of a file that an operation changes. The file's inode is locked.
pub(crate) struct ExtentTree<'o, 'a> {
    op: &'o mut Op<'a>,
    file: &'o mut Handle,
}

impl<'o, 'a> ExtentTree<'o, 'a> {
    /// Returns the tree of a file with extents.
    pub(crate) fn new(op: &'o mut Op<'a>, file: &'o mut Handle) -> Self {
        Self { op, file }
    }
}
