//! Extent trees: which blocks of the device hold which blocks of a file.
//!
//! The tree of an inode is read and changed only under the inode's lock. All changes of a leaf are
//! one: some of its entries are replaced by others (`replace`), after which the tree is again as
//! checkers want it: every index entry starts where the node below it does, no node but the root is
//! empty, neighbours that fit into one node are one, and a root that leads to next to nothing takes
//! it in.

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

/// The extent tree of a file that an operation changes. The file's inode is locked.
pub(crate) struct ExtentTree<'o, 'a> {
    op: &'o mut Op<'a>,
    file: &'o mut Handle,
}

impl<'o, 'a> ExtentTree<'o, 'a> {
    /// The tree of a file with extents.
    pub(crate) fn new(op: &'o mut Op<'a>, file: &'o mut Handle) -> Self {
        Self { op, file }
    }
}
