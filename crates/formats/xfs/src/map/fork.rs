//! The extent map of a fork that an operation changes.

use engine::Txn;
use operations::Outcome;
use vfs::Result;

use super::{Extent, check, is_realtime, lookup};
use crate::alloc::{ExtentRequest, RmapOwner};
use crate::btree::records::{BmapTree, RtRefcountTree, RtRmapTree};
use crate::btree::{Anchor, Cursor, Supply, Tree, TreeOwner, TreeRoot};
use crate::format::address::{FileBlock, FsBlock};
use crate::format::btree::TreeShape;
use crate::format::geometry::Geometry;
use crate::format::inode::{Fork, ForkFormat};
use crate::inode::Handle;
use crate::op::Op;

/// The extent map of a fork that an operation changes. Changes are made to the inode's handle; the caller stages it.
pub(crate) struct ForkMap<'o, 'a> {
    pub(super) op: &'o mut Op<'a>,
    pub(super) handle: &'o mut Handle,
    pub(super) fork: Fork,
}

impl<'a> Op<'a> {
    /// Returns the map of a fork for changing.
    pub(crate) fn map<'o>(&'o mut self, handle: &'o mut Handle, fork: Fork) -> ForkMap<'o, 'a> {
        ForkMap { op: self, handle, fork }
    }
}

impl<'o, 'a> ForkMap<'o, 'a> {
    /// Returns the last extent that starts at or before `at`, unchecked, and the start of the next one (or a lower
    /// bound of it).
    pub(super) fn lookup(&mut self, at: FileBlock) -> Outcome<(Option<Extent>, FileBlock)> {
        Ok(lookup(self.op, self.handle, self.fork, at)?)
    }

    /// Checks an extent that was found, before its address is used.
    pub(super) fn check(&self, extent: &Extent) -> Result<()> {
        check(&*self.op, self.handle, self.fork, extent)
    }

    /// Returns the owner of an extent, as in the reverse map.
    pub(super) fn owner_of(&self, extent: &Extent) -> RmapOwner {
        let (ino, offset, unwritten) = (self.handle.ino(), extent.offset.0, extent.unwritten);
        RmapOwner::Fork { ino, fork: self.fork, offset, unwritten }
    }

    /// Returns the owner of the blocks of the tree.
    pub(super) fn tree_owner(&self) -> RmapOwner {
        RmapOwner::Bmbt { ino: self.handle.ino(), fork: self.fork }
    }

    /// Allocates a block for the tree.
    pub(super) fn allocate_tree_block(&mut self, near: FsBlock) -> Outcome<FsBlock> {
        let owner = self.tree_owner();
        let request =
            ExtentRequest { near, lead: 0, min_len: 1, max_len: 1, owner, for_data: false };
        Ok(self.op.allocate_extent(&request)?.0)
    }

    /// Subtracts blocks from the inode's count.
    pub(super) fn subtract_blocks(&mut self, count: u64) -> Result<()> {
        match self.handle.inode.nblocks().checked_sub(count) {
            Some(left) => self.handle.inode.set_nblocks(left),
            None => return Err(self.handle.corrupt("inode", "it has more blocks than counted")),
        }
        Ok(())
    }

    /// Subtracts blocks that the fork does not map any more from the inode's count.
    pub(super) fn subtract_mapped(&mut self, count: u64) -> Result<()> {
        self.subtract_blocks(count)?;
        self.note_realtime(-(count as i64));
        Ok(())
    }

    /// Notes for quotas that the fork maps `delta` more blocks, if they are on the realtime device.
    pub(super) fn note_realtime(&mut self, delta: i64) {
        if is_realtime(self.handle, self.fork) {
            self.op.usage.note_realtime(self.handle.ino(), delta);
        }
    }

    /// Returns a cursor over the tree of the fork. It updates the inode's block count.
    ///
    /// # Errors
    /// `Corrupt` if the fork has no tree.
    pub(crate) fn cursor(&mut self) -> Outcome<Cursor<'_, 'a, BmapTree, ForkMap<'o, 'a>>> {
        if self.handle.inode.fork_format(self.fork) != ForkFormat::Btree {
            return Err(self.handle.corrupt(TreeShape::BMBT.name, "the fork is invalid").into());
        }
        Ok(Cursor::new(self))
    }
}

/// A tree whose root is in the fork of an inode, and whose blocks the inode counts as its own.
pub(crate) trait ForkTree: Tree {}

impl ForkTree for BmapTree {}
impl ForkTree for RtRmapTree {}
impl ForkTree for RtRefcountTree {}

impl<'a, T: ForkTree> Anchor<'a, T> for ForkMap<'_, 'a> {
    fn geometry(&self) -> &'a Geometry {
        &self.op.fs.volume.geometry
    }

    fn txn(&self) -> &Txn<'a> {
        &self.op.txn
    }

    fn txn_mut(&mut self) -> &mut Txn<'a> {
        &mut self.op.txn
    }

    fn owner(&self) -> TreeOwner {
        TreeOwner::Inode(self.handle.ino())
    }

    fn root(&self) -> TreeRoot<'_> {
        TreeRoot::Fork(self.handle.inode.fork(self.fork))
    }

    fn set_root(&mut self, _block: u64, _levels: u8) {
        debug_assert!(false, "the root lies in the fork");
    }

    fn fork_mut(&mut self) -> &mut [u8] {
        self.handle.inode.fork_mut(self.fork)
    }

    fn count_block(&mut self, is_more: bool) -> Result<()> {
        let inode = &mut self.handle.inode;
        let nblocks = inode.nblocks();
        let count = if is_more { Some(nblocks.saturating_add(1)) } else { nblocks.checked_sub(1) };
        match count {
            Some(count) => inode.set_nblocks(count),
            None => {
                return Err(self
                    .handle
                    .corrupt("inode", "nblocks is less than its number of blocks"));
            }
        }
        Ok(())
    }
}

/// The tree of a fork allocates its blocks like the file's own.
impl<'a, T: ForkTree> Supply<'a, T> for ForkMap<'_, 'a> {
    fn allocate_block(&mut self, near: u64) -> Outcome<u64> {
        // The first block of a tree has no neighbours.
        let near = if near == 0 { self.op.metadata_goal(self.handle) } else { FsBlock(near) };
        Ok(self.allocate_tree_block(near)?.0)
    }

    fn free_block(&mut self, block: u64) -> Outcome<()> {
        let owner = self.tree_owner();
        self.op.free_extent(FsBlock(block), 1, owner);
        Ok(())
    }
}
