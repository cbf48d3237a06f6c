//! Lists that become trees, and trees that become lists.

use vfs::Result;

use super::change::list_max;
use super::list;
use crate::alloc::{Owner, Request};
use crate::format::address::{FileBlock, FsBlock};
use crate::format::btree::Shape;
use crate::format::bytes::{put16, put64};
use crate::format::extent::{EXTENT_SIZE, offset_of};
use crate::format::inode::{Fork, Format};
use crate::inode::Handle;
use crate::kind::Kind;
use crate::op::Op;

/// What a root in a fork starts with: its level and its number of entries.
const LEVEL_AND_COUNT: (usize, usize) = (0, 2);

impl Op<'_> {
    /// Makes the list of a fork that is not empty a tree of one leaf.
    pub(crate) fn list_to_tree(&mut self, handle: &mut Handle, fork: Fork) -> Result<()> {
        let geometry = self.fs.volume.geometry;
        let owner = Owner::Bmbt { ino: handle.ino(), fork };
        let near = self.metadata_goal(handle);
        let request = Request { near, min_len: 1, max_len: 1, owner, for_data: false };
        let (start, _) = self.allocate_extent(&request)?;
        let block = geometry.device_block(start);
        let tag = Kind::Bmbt.of_inode(handle.ino(), 0);
        let id = self.txn.create(block.0, tag)?;
        let leaf = self.txn.edit(id, 0..geometry.block_size());
        Shape::BMBT.init(&geometry, block, handle.ino().0, 0, leaf);
        let area = Shape::BMBT.leaf_area(&geometry);
        let records = list::records(handle, fork)?;
        let count = records.len() / EXTENT_SIZE;
        if count == 0 || count > area.max {
            return Err(handle.corrupt("extent list", "no tree can start with it"));
        }
        leaf[area.entry_range(0, count)].copy_from_slice(records);
        put16(leaf, area.count_range().start, count as u16);
        let first = offset_of(records);
        self.put_root(handle, fork, first, start)?;
        handle.inode.set_format(fork, Format::Btree);
        handle.inode.set_nblocks(handle.inode.nblocks() + 1);
        Ok(())
    }

    fn put_root(
        &mut self,
        handle: &mut Handle,
        fork: Fork,
        first: FileBlock,
        leaf: FsBlock,
    ) -> Result<()> {
        let bytes = handle.inode.fork_mut(fork);
        let area = Shape::BMBT.root_area(bytes.len());
        if area.max == 0 {
            return Err(handle.corrupt("inode", "a fork without room for the root of a tree"));
        }
        bytes.fill(0);
        put16(bytes, LEVEL_AND_COUNT.0, 1);
        put16(bytes, LEVEL_AND_COUNT.1, 1);
        put64(bytes, area.entries, first.0);
        put64(bytes, area.pointers, leaf.0);
        Ok(())
    }

    /// Makes the tree of a fork a list, which has room for it. A tree of several leaves, which nobody
    /// makes of so few extents, stays.
    pub(super) fn tree_to_list(&mut self, handle: &mut Handle, fork: Fork) -> Result<()> {
        let geometry = self.fs.volume.geometry;
        let root = handle.inode.fork(fork);
        let area = Shape::BMBT.root_area(root.len());
        if area.level(root) != 1 || area.count(root) != 1 {
            return Ok(());
        }
        let leaf = FsBlock(area.pointer(root, 0));
        if !geometry.contains(leaf, 1) {
            return Err(handle.corrupt("bmbt root", "a pointer out of the file system"));
        }
        let block = geometry.device_block(leaf);
        let id = self.buffer(block, Kind::Bmbt.of_inode(handle.ino(), 0))?;
        let data = self.txn.data(id);
        let area = Shape::BMBT.leaf_area(&geometry);
        let count = area.count(data);
        let is_sound = area.level(data) == 0
            && count as u64 == handle.inode.extents(fork)
            && count as u64 <= list_max(handle, fork);
        if !is_sound {
            return Err(handle.corrupt("bmbt", "it has not as many extents as the inode counts"));
        }
        let records = &data[area.entry_range(0, count)];
        let bytes = handle.inode.fork_mut(fork);
        bytes.fill(0);
        bytes[..records.len()].copy_from_slice(records);
        self.txn.forget(block.0);
        self.free_extent(leaf, 1, Owner::Bmbt { ino: handle.ino(), fork });
        handle.inode.set_format(fork, Format::Extents);
        subtract_blocks(handle, 1)
    }

    /// Where metadata of an inode is best: near the inode.
    pub(crate) fn metadata_goal(&self, handle: &Handle) -> FsBlock {
        let geometry = &self.fs.volume.geometry;
        let (ag, block) = geometry.locate(handle.block);
        geometry.fs_block(ag, block)
    }
}

/// Counts blocks off an inode.
pub(super) fn subtract_blocks(handle: &mut Handle, count: u64) -> Result<()> {
    match handle.inode.nblocks().checked_sub(count) {
        Some(left) => handle.inode.set_nblocks(left),
        None => return Err(handle.corrupt("inode", "it has more blocks than it counts")),
    }
    Ok(())
}
