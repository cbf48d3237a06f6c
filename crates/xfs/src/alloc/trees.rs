//! Blocks for the trees of a group.

use vfs::{Error, Result};

use crate::alloc::ags::AgTree;
use crate::format::address::AgBlock;
use crate::op::Op;

impl Op<'_> {
    /// Takes a block for a tree of the group held as `lease`: for the trees of free space and the
    /// reverse map from the AGFL, for the others from free space, with an owner in the reverse map.
    /// The tree counts its blocks itself.
    pub(crate) fn take_tree_block(&mut self, _lease: usize, _tree: AgTree) -> Result<AgBlock> {
        Err(Error::NoSpace)
    }

    /// Gives a block of a tree back to where [`Op::take_tree_block`] takes it from. Its contents are
    /// forgotten already.
    pub(crate) fn give_tree_block(
        &mut self,
        _lease: usize,
        _tree: AgTree,
        _block: AgBlock,
    ) -> Result<()> {
        Err(Error::NoSpace)
    }
}
