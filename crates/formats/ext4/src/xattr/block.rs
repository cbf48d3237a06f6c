//! Attribute blocks: changed in place if only one inode uses them, otherwise copied.

use operations::Outcome;

use super::enter_number;
use super::plan::BlockChange;
use crate::format::address::Block;
use crate::format::xattr::{AttributeName, BLOCK_REFCOUNT_RANGE, block_refcount};
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::op::Op;

impl Op<'_> {
    /// Changes the attribute block of `handle` as planned. `number` is the inode for the value of one of its
    /// attributes.
    pub(super) fn change_block(
        &mut self,
        handle: &mut Handle,
        change: &BlockChange,
        is_shared: bool,
        number: Option<(AttributeName<'_>, u32)>,
    ) -> Outcome<()> {
        match change {
            BlockChange::Keep => Ok(()),
            BlockChange::Drop => self.drop_block(handle, is_shared),
            BlockChange::Write(bytes) => {
                if is_shared {
                    self.drop_block(handle, true)?;
                }
                if handle.inode.file_acl() == 0 {
                    let goal = self.metadata_goal(handle);
                    let (block, _) = self.allocate_clusters(goal, 1)?;
                    self.add_clusters(handle, 1)?;
                    handle.inode.set_file_acl(block.0);
                }
                let id = self.txn.create(handle.inode.file_acl(), BlockKind::Xattr.plain())?;
                let block = self.txn.edit(id, 0..bytes.len());
                block.copy_from_slice(bytes);
                match number {
                    Some((name, ino)) => Ok(enter_number(block, true, name, ino)?),
                    None => Ok(()),
                }
            }
        }
    }

    /// Removes the attribute block of an inode. Frees it, or drops a reference at the commit if other inodes share it.
    pub(super) fn drop_block(&mut self, handle: &mut Handle, is_shared: bool) -> Outcome<()> {
        let block = Block(handle.inode.file_acl());
        handle.inode.set_file_acl(0);
        if !is_shared {
            return self.free_metadata(handle, block);
        }
        self.subtract_clusters(handle, 1)?;
        self.released_attributes.push(block);
        Ok(())
    }

    /// Drops the noted references to shared blocks, and frees blocks without references. Groups are locked before the
    /// blocks, because an operation that holds a group may be waiting for such a block.
    pub(crate) fn release_noted_attributes(&mut self) -> Outcome<()> {
        if self.released_attributes.is_empty() {
            return Ok(());
        }
        let mut blocks = std::mem::take(&mut self.released_attributes);
        blocks.sort_unstable();
        let geometry = self.fs.volume.geometry;
        for &block in &blocks {
            self.fs.volume.check_blocks(block, 1)?;
            self.hold(geometry.group_of(block))?;
        }
        for block in blocks {
            let id = self.buffer(block, BlockKind::Xattr.plain())?;
            // The count is at least 1: a damaged block with no references was rejected.
            let left = block_refcount(self.txn.data(id)).saturating_sub(1);
            if left > 0 {
                self.txn.edit(id, BLOCK_REFCOUNT_RANGE).copy_from_slice(&left.to_le_bytes());
                continue;
            }
            self.txn.forget(block.0);
            let bit = geometry.bit_of(block);
            self.free_in_group(geometry.group_of(block), bit..bit + 1)?;
        }
        Ok(())
    }
}
