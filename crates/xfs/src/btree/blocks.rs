//! Blocks that trees take and give back, and counting them.

use vfs::{Error, Result};

use super::{Cursor, Home, Node, Tree};
use crate::alloc::ags::{AgState, AgTree};
use crate::alloc::{Owner, Request};
use crate::format::address::{AgBlock, FsBlock};

impl<T: Tree> Cursor<'_, '_, T> {
    /// A new, empty block, near another one of the tree where there is a choice.
    pub(super) fn new_node(&mut self, level: usize, near: u64) -> Result<Node> {
        let pointer = self.take_block(near)?;
        let place = self.place_of(pointer)?;
        let tag = self.tag();
        let id = self.op.txn.create(place.0, tag)?;
        let geometry = &self.op.fs.volume.geometry;
        let header = T::SHAPE.header_size(geometry.features.crc());
        let bytes = self.op.txn.edit(id, 0..header);
        T::SHAPE.init(geometry, place, tag.owner, level as u16, bytes);
        Ok(Node { block: pointer, buffer: Some(id), level })
    }

    fn take_block(&mut self, near: u64) -> Result<u64> {
        match &mut self.home {
            Home::Group { lease, tree, .. } => {
                let block = match stand_in::take() {
                    Some(block) => AgBlock(block),
                    None => self.op.take_tree_block(*lease, *tree)?,
                };
                count_block(&mut self.op.leases[*lease], *tree, true)?;
                Ok(block.0.into())
            }
            Home::Fork { handle, fork } => {
                let owner = Owner::Bmbt { ino: handle.ino(), fork: *fork };
                let near = FsBlock(near);
                let request = Request { near, min_len: 1, max_len: 1, owner, for_data: false };
                let (block, _) = match stand_in::take() {
                    Some(block) => (FsBlock(block.into()), 1),
                    None => self.op.allocate_extent(&request)?,
                };
                handle.inode.set_nblocks(handle.inode.nblocks().saturating_add(1));
                Ok(block.0)
            }
        }
    }

    /// Gives a block back.
    pub(super) fn give_block(&mut self, node: Node) -> Result<()> {
        let place = self.place_of(node.block)?;
        self.op.txn.forget(place.0);
        match &mut self.home {
            Home::Group { lease, tree, .. } => {
                count_block(&mut self.op.leases[*lease], *tree, false)?;
                if stand_in::give(node.block) {
                    return Ok(());
                }
                self.op.give_tree_block(*lease, *tree, AgBlock(node.block as u32))
            }
            Home::Fork { handle, fork } => {
                let Some(nblocks) = handle.inode.nblocks().checked_sub(1) else {
                    return Err(handle.corrupt("inode", "nblocks is less than it has"));
                };
                handle.inode.set_nblocks(nblocks);
                if stand_in::give(node.block) {
                    return Ok(());
                }
                let owner = Owner::Bmbt { ino: handle.ino(), fork: *fork };
                self.op.free_extent(FsBlock(node.block), 1, owner);
                Ok(())
            }
        }
    }
}

/// Counts a block that a tree of a group has more or less.
fn count_block(state: &mut AgState, tree: AgTree, more: bool) -> Result<()> {
    // The AGFL's blocks that trees have, whichever tree it is, are counted together.
    if matches!(tree, AgTree::Bno | AgTree::Cnt | AgTree::Rmap) {
        count(&mut state.btreeblks, more)?;
    }
    match tree {
        AgTree::Bno | AgTree::Cnt => Ok(()),
        AgTree::Rmap => count(&mut state.rmap_blocks, more),
        AgTree::Refcount => count(&mut state.refcount_blocks, more),
        AgTree::Ino => count_inode_blocks(&mut state.ino_blocks, more),
        AgTree::Fino => count_inode_blocks(&mut state.fino_blocks, more),
    }
}

fn count(number: &mut u32, more: bool) -> Result<()> {
    let next = if more { number.checked_add(1) } else { number.checked_sub(1) };
    let damage = || Error::from(vfs::Corruption::new("AGF", "a count of blocks of trees is wrong"));
    *number = next.ok_or_else(damage)?;
    Ok(())
}

/// File systems without the feature "inobtcount" have no such numbers, and they stay 0.
fn count_inode_blocks(number: &mut u32, more: bool) -> Result<()> {
    if *number == 0 { Ok(()) } else { count(number, more) }
}

/// Where tests of the trees alone have their blocks from.
#[cfg(test)]
mod stand_in {
    use crate::btree::tests::supply;

    pub(super) fn take() -> Option<u32> {
        supply::take()
    }

    pub(super) fn give(block: u64) -> bool {
        supply::give(block)
    }
}

#[cfg(not(test))]
mod stand_in {
    pub(super) const fn take() -> Option<u32> {
        None
    }

    pub(super) const fn give(_block: u64) -> bool {
        false
    }
}
