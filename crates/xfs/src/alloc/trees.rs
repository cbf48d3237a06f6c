//! Blocks for the trees of a group.

use vfs::{Error, Result};

use super::space::Wish;
use crate::alloc::Owner;
use crate::alloc::ags::AgTree;
use crate::format::address::AgBlock;
use crate::op::Op;

/// Whom the blocks of a tree belong to that live off free space; `None` for those that live off the
/// AGFL.
const fn owner_of(tree: AgTree) -> Option<Owner> {
    match tree {
        AgTree::Bno | AgTree::Cnt | AgTree::Rmap => None,
        AgTree::Ino | AgTree::Fino => Some(Owner::InodeTrees),
        AgTree::Refcount => Some(Owner::RefcountTree),
    }
}

impl Op<'_> {
    /// Takes a block for a tree of the group held as `lease`: for the trees of free space and the
    /// reverse map from the AGFL, for the others from free space, with an owner in the reverse map.
    /// The tree counts its blocks itself.
    pub(crate) fn take_tree_block(&mut self, lease: usize, tree: AgTree) -> Result<AgBlock> {
        let Some(owner) = owner_of(tree) else { return self.pop_agfl(lease) };
        self.adjust_agfl(lease)?;
        let near = self.leases[lease].root(tree).block;
        let block = self.take_wish(lease, &Wish::near(near, 1))?.ok_or(Error::NoSpace)?;
        self.rmap_add(lease, block, 1, owner)?;
        Ok(block)
    }

    /// Gives a block of a tree back to where [`Op::take_tree_block`] takes it from. Its contents are
    /// forgotten already.
    pub(crate) fn give_tree_block(
        &mut self,
        lease: usize,
        tree: AgTree,
        block: AgBlock,
    ) -> Result<()> {
        let Some(owner) = owner_of(tree) else { return self.push_agfl(lease, block) };
        self.adjust_agfl(lease)?;
        self.rmap_remove(lease, block, 1, owner)?;
        self.give_space(lease, block, 1)
    }
}
