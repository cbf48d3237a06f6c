//! Converting lists to trees, and trees to lists.

use operations::Outcome;
use vfs::Result;

use super::change::list_max;
use super::fork::ForkMap;
use super::list;
use crate::format::address::{FileBlock, FsBlock};
use crate::format::btree::TreeShape;
use crate::format::bytes::{put16, put64};
use crate::format::extent::{EXTENT_SIZE, offset_of};
use crate::format::inode::{Fork, ForkFormat};
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::op::Op;

/// Offsets of the level and the number of entries of a root in a fork.
const LEVEL_AND_COUNT: (usize, usize) = (0, 2);

impl Op<'_> {
    /// Converts the list of a fork, which must not be empty, to a tree of one leaf.
    pub(crate) fn list_to_tree(&mut self, handle: &mut Handle, fork: Fork) -> Outcome<()> {
        self.map(handle, fork).list_to_tree()
    }

    /// Returns the best place for metadata of an inode: near the inode.
    pub(crate) fn metadata_goal(&self, handle: &Handle) -> FsBlock {
        let geometry = &self.fs.volume.geometry;
        let (ag, block) = geometry.locate(handle.block);
        geometry.fs_block(ag, block)
    }
}

impl ForkMap<'_, '_> {
    /// See [`Op::list_to_tree`].
    pub(super) fn list_to_tree(&mut self) -> Outcome<()> {
        let geometry = self.op.fs.volume.geometry;
        let near = self.op.metadata_goal(self.handle);
        let start = self.allocate_tree_block(near)?;
        let (handle, fork) = (&mut *self.handle, self.fork);
        let block = geometry.device_block(start);
        let tag = BlockKind::Bmbt.of_inode(handle.ino(), 0);
        let id = self.op.txn.create(block.0, tag)?;
        let leaf = self.op.txn.edit(id, 0..geometry.block_size());
        TreeShape::BMBT.init(&geometry, block, handle.ino().0, 0, leaf);
        let area = TreeShape::BMBT.leaf_area(&geometry);
        let records = list::records(handle, fork)?;
        let count = records.len() / EXTENT_SIZE;
        if count == 0 || count > area.max {
            return Err(handle.corrupt("extent list", "it cannot be the start of a tree").into());
        }
        leaf[area.entry_range(0, count)].copy_from_slice(records);
        put16(leaf, area.count_range().start, count as u16);
        let first = offset_of(records);
        put_root(handle, fork, first, start)?;
        handle.inode.set_format(fork, ForkFormat::Btree);
        handle.inode.set_nblocks(handle.inode.nblocks() + 1);
        Ok(())
    }

    /// Converts the tree of the fork to a list, which must have room for its extents. A tree of several leaves is kept:
    /// no writer makes one for so few extents.
    pub(super) fn tree_to_list(&mut self) -> Outcome<()> {
        let geometry = self.op.fs.volume.geometry;
        let (handle, fork) = (&mut *self.handle, self.fork);
        let root = handle.inode.fork(fork);
        let area = TreeShape::BMBT.root_area(root.len());
        if area.level(root) != 1 || area.count(root) != 1 {
            return Ok(());
        }
        let leaf = FsBlock(area.pointer(root, 0));
        if !geometry.contains(leaf, 1) {
            return Err(handle.corrupt("bmbt root", "a pointer outside the file system").into());
        }
        let block = geometry.device_block(leaf);
        let id = self.op.buffer(block, BlockKind::Bmbt.of_inode(handle.ino(), 0))?;
        let data = self.op.txn.data(id);
        let area = TreeShape::BMBT.leaf_area(&geometry);
        let count = area.count(data);
        let is_sound = area.level(data) == 0
            && count as u64 == handle.inode.extents(fork)
            && count as u64 <= list_max(handle, fork);
        if !is_sound {
            return Err(handle
                .corrupt("bmbt", "it has fewer extents than the inode counts")
                .into());
        }
        let records = &data[area.entry_range(0, count)];
        let bytes = handle.inode.fork_mut(fork);
        bytes.fill(0);
        bytes[..records.len()].copy_from_slice(records);
        self.op.txn.forget(block.0);
        let owner = self.tree_owner();
        self.op.free_extent(leaf, 1, owner);
        self.handle.inode.set_format(fork, ForkFormat::Extents);
        Ok(self.subtract_blocks(1)?)
    }
}

fn put_root(handle: &mut Handle, fork: Fork, first: FileBlock, leaf: FsBlock) -> Result<()> {
    let bytes = handle.inode.fork_mut(fork);
    let area = TreeShape::BMBT.root_area(bytes.len());
    if area.max == 0 {
        return Err(handle.corrupt("inode", "a fork without space for the root of a tree"));
    }
    bytes.fill(0);
    put16(bytes, LEVEL_AND_COUNT.0, 1);
    put16(bytes, LEVEL_AND_COUNT.1, 1);
    put64(bytes, area.entries, first.0);
    put64(bytes, area.pointers, leaf.0);
    Ok(())
}
