//! One operation: a transaction, the groups it allocates from, and the inodes it will write.
//!
//! Lock order within an operation: inode locks (taken before it starts) → blocks of directories,
//! extent trees and attributes of the locked inodes → groups → blocks of inode tables. Inode tables
//! come last because different inodes share their blocks: changed inodes are staged, and written in
//! the order of their blocks when the operation commits.

use smallvec::SmallVec;
use transaction::{BufferId, Corruption, Tag, Txn};
use vfs::Result;

use crate::Ext4;
use crate::alloc::groups::Lease;
use crate::format::address::Block;
use crate::format::inode::{self, Owner};
use crate::kind::Kind;

pub(crate) use crate::read::inode::Handle;

struct Staged {
    handle: Handle,
    fresh: bool,
    /// What follows the fixed fields, if it changes.
    tail: Option<Vec<u8>>,
}

/// An operation. Dropped without [`Op::commit`], it leaves no trace.
pub(crate) struct Op<'a> {
    pub(crate) fs: &'a Ext4,
    // Groups are let go before the transaction rolls back: nobody can see the bitmaps in between,
    // because the transaction still holds them.
    pub(crate) leases: SmallVec<[Lease<'a>; 2]>,
    pub(crate) txn: Txn<'a>,
    staged: SmallVec<[Staged; 2]>,
}

impl<'a> Op<'a> {
    pub(crate) fn begin(fs: &'a Ext4) -> Result<Self> {
        let txn = fs.engine.begin()?;
        Ok(Self { fs, leases: SmallVec::new(), txn, staged: SmallVec::new() })
    }

    /// Holds a block to the end of the operation.
    pub(crate) fn buffer(&mut self, block: Block, tag: Tag) -> Result<BufferId> {
        Ok(self.txn.buffer(block.0, tag)?)
    }

    /// Writes `handle`'s fields when the operation commits.
    pub(crate) fn stage(&mut self, handle: Handle) {
        self.staged.push(Staged { handle, fresh: false, tail: None });
    }

    /// Writes `handle`'s fields when the operation commits, if they are not what they were.
    pub(crate) fn stage_if_changed(&mut self, handle: Handle, before: &Handle) {
        if handle.inode.as_bytes() != before.inode.as_bytes() {
            self.stage(handle);
        }
    }

    /// Writes `handle`'s fields and what follows them in its slot when the operation commits.
    pub(crate) fn stage_with_tail(&mut self, handle: Handle, tail: Vec<u8>) {
        self.staged.push(Staged { handle, fresh: false, tail: Some(tail) });
    }

    /// Writes a new inode when the operation commits; nothing of its slot's past is kept.
    pub(crate) fn stage_new(&mut self, handle: Handle) {
        self.staged.push(Staged { handle, fresh: true, tail: None });
    }

    /// Joins the operation to the running checkpoint.
    pub(crate) fn commit(mut self) -> Result<()> {
        self.staged.sort_unstable_by_key(|s| (s.handle.block, s.handle.offset));
        for staged in std::mem::take(&mut self.staged) {
            self.write_inode(&staged)?;
        }
        self.fs.volume.groups.keep(self.leases.drain(..));
        self.txn.commit();
        Ok(())
    }

    fn write_inode(&mut self, staged: &Staged) -> Result<()> {
        let volume = &self.fs.volume;
        let Handle { owner, inode, block, offset } = &staged.handle;
        let id = self.txn.buffer(block.0, Kind::InodeTable.plain())?;
        let slot = self.txn.edit(id, *offset..offset + usize::from(volume.geometry.inode_size));
        if staged.fresh {
            slot.fill(0);
        }
        let fields = inode.as_bytes();
        slot[..fields.len()].copy_from_slice(fields);
        if let Some(tail) = &staged.tail {
            let start = slot.len() - tail.len();
            slot[start..].copy_from_slice(tail);
        }
        if volume.checksums {
            inode::seal_slot(owner.seed, slot);
        }
        Ok(())
    }

    /// Damage in a held block.
    pub(crate) fn corrupt(&self, id: BufferId, c: Corruption, owner: Owner) -> vfs::Error {
        self.txn.corrupt(id, c).of_inode(owner.ino.0).into()
    }
}
