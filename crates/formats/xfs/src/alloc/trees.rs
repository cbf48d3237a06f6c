//! The trees of a group: their roots, their block counts, and the supply of their blocks.

use engine::{Corruption, Txn};
use operations::Outcome;
use vfs::{Error, Result};

use super::ags::{AgTree, Root};
use super::held::HeldAg;
use super::space::AllocRequest;
use crate::alloc::RmapOwner;
use crate::btree::records::{BnoTree, CntTree, FinoTree, InoTree, RefcountTree, RmapTree};
use crate::btree::{Anchor, Cursor, Supply, Tree, TreeOwner, TreeRoot};
use crate::format::address::AgBlock;
use crate::format::geometry::Geometry;
use crate::inode::ChunkTree;

/// A tree of an allocation group.
pub(crate) trait GroupTree: Tree {
    /// Identifies the tree.
    const AG_TREE: AgTree;
}

impl GroupTree for BnoTree {
    const AG_TREE: AgTree = AgTree::Bno;
}

impl GroupTree for CntTree {
    const AG_TREE: AgTree = AgTree::Cnt;
}

impl GroupTree for RmapTree {
    const AG_TREE: AgTree = AgTree::Rmap;
}

impl GroupTree for RefcountTree {
    const AG_TREE: AgTree = AgTree::Refcount;
}

impl GroupTree for InoTree {
    const AG_TREE: AgTree = AgTree::Ino;
}

impl GroupTree for FinoTree {
    const AG_TREE: AgTree = AgTree::Fino;
}

/// A cursor over a tree of a group.
pub(crate) type AgCursor<'c, 'o, 'a, T> = Cursor<'c, 'a, T, HeldAg<'o, 'a>>;

impl<'o, 'a> HeldAg<'o, 'a> {
    /// Returns a cursor over a tree of the group, which the file system must have.
    pub(crate) fn cursor<T: GroupTree>(&mut self) -> AgCursor<'_, 'o, 'a, T> {
        Cursor::new(self)
    }

    /// Returns whether the file system has a tree.
    pub(crate) fn has_tree(&self, tree: AgTree) -> bool {
        self.guard.root(tree).levels > 0
    }
}

impl<'a, T: GroupTree> Anchor<'a, T> for HeldAg<'_, 'a> {
    fn geometry(&self) -> &'a Geometry {
        &self.volume.geometry
    }

    fn txn(&self) -> &Txn<'a> {
        self.txn
    }

    fn txn_mut(&mut self) -> &mut Txn<'a> {
        self.txn
    }

    fn owner(&self) -> TreeOwner {
        TreeOwner::Group(self.number())
    }

    fn root(&self) -> TreeRoot<'_> {
        let Root { block, levels } = self.guard.root(T::AG_TREE);
        TreeRoot::Block { block: block.0.into(), levels }
    }

    fn set_root(&mut self, block: u64, levels: u8) {
        let root = Root { block: AgBlock(block as u32), levels };
        self.guard.roots[T::AG_TREE as usize] = root;
    }

    fn fork_mut(&mut self) -> &mut [u8] {
        &mut []
    }

    fn count_block(&mut self, is_more: bool) -> Result<()> {
        let state = &mut **self.guard;
        match T::AG_TREE {
            AgTree::Bno | AgTree::Cnt => count(&mut state.btreeblks, is_more),
            AgTree::Rmap => {
                // Blocks that trees got from the AGFL have one common count.
                count(&mut state.btreeblks, is_more)?;
                count(&mut state.rmap_blocks, is_more)
            }
            AgTree::Refcount => count(&mut state.refcount_blocks, is_more),
            AgTree::Ino => count_inode_blocks(&mut state.ino_blocks, is_more),
            AgTree::Fino => count_inode_blocks(&mut state.fino_blocks, is_more),
        }
    }
}

fn count(number: &mut u32, is_more: bool) -> Result<()> {
    let next = if is_more { number.checked_add(1) } else { number.checked_sub(1) };
    let damage = || Error::from(Corruption::new("AGF", "the block count of a tree is wrong"));
    *number = next.ok_or_else(damage)?;
    Ok(())
}

/// File systems without the feature "inobtcount" have no such counts; they stay 0.
fn count_inode_blocks(number: &mut u32, is_more: bool) -> Result<()> {
    if *number == 0 { Ok(()) } else { count(number, is_more) }
}

/// Returns the owner of a tree's blocks if the tree takes them from free space; `None` if it takes them from the AGFL.
const fn owner_of(tree: AgTree) -> Option<RmapOwner> {
    match tree {
        AgTree::Bno | AgTree::Cnt | AgTree::Rmap => None,
        AgTree::Ino | AgTree::Fino => Some(RmapOwner::InodeTrees),
        AgTree::Refcount => Some(RmapOwner::RefcountTree),
    }
}

/// The free-space trees and the reverse map take their blocks from the AGFL. The other trees take theirs from free
/// space, with a record in the reverse map for each.
impl<'a, T: GroupTree> Supply<'a, T> for HeldAg<'_, 'a> {
    fn allocate_block(&mut self, _near: u64) -> Outcome<u64> {
        let block = match owner_of(T::AG_TREE) {
            None => self.pop_agfl()?,
            Some(owner) => self.take_tree_block(T::AG_TREE, owner)?,
        };
        Ok(block.0.into())
    }

    fn free_block(&mut self, block: u64) -> Outcome<()> {
        let block = AgBlock(block as u32);
        match T::AG_TREE {
            AgTree::Ino => self.guard.known_chunks.forget(ChunkTree::All),
            AgTree::Fino => self.guard.known_chunks.forget(ChunkTree::Free),
            _ => {}
        }
        match owner_of(T::AG_TREE) {
            None => self.push_agfl(block),
            Some(owner) => self.free_in(block, 1, owner),
        }
    }
}

impl HeldAg<'_, '_> {
    /// Allocates a block for a tree from free space, close to the root of the tree.
    fn take_tree_block(&mut self, tree: AgTree, owner: RmapOwner) -> Outcome<AgBlock> {
        self.adjust_agfl()?;
        let near = self.guard.root(tree).block;
        let block = self.take_wish(&AllocRequest::near(near, 1))?.ok_or(Error::NoSpace)?;
        self.rmap_add(block, 1, owner)?;
        Ok(block)
    }
}
