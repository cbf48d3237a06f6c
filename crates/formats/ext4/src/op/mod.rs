//! One operation: a transaction, the groups that it allocates from, the blocks and inodes that it frees, and the inodes
//! that it writes.
//!
//! Lock order within an operation: inode locks (taken before it starts) → blocks of directories, extent trees and
//! attributes of the locked inodes → groups, in ascending order → blocks that several inodes share: attribute blocks,
//! orphan blocks, the superblock, then inode tables, in ascending order. Steps that belong late in this order are
//! deferred: freed blocks and inodes, orphans and changed inodes are only noted, and are processed at the commit.
//!
//! [`HeldGroups`] explains how groups are held, and what happens if a group is locked by another operation.

pub(crate) mod source;

use engine::{BufferId, Corruption, Engine, Tag, Txn, slot_mark};
use operations::data::ZeroedRuns;
use operations::reserve::Claim;
use operations::{InMemoryUndo, Mode, Operation, Outcome, RunOperations};
use smallvec::SmallVec;
use vfs::Result;

use crate::Ext4Core;
use crate::alloc::guard::HeldGroups;
use crate::format::address::{Block, Group};
use crate::format::inode::{self, BlockOwner, DTIME_BYTES, Inode};
use crate::kind::BlockKind;
use crate::orphan::Pending;
use crate::quota::{Account, UsageChanges};

use crate::inode::Handle;

struct Staged {
    handle: Handle,
    fresh: bool,
    /// New contents of the slot after the fixed fields, if they change.
    tail: Option<Vec<u8>>,
}

/// Run of blocks to free.
#[derive(Clone, Copy)]
pub(crate) struct FreedRun {
    pub(crate) start: Block,
    pub(crate) len: u32,
}

/// Groups whose locks an allocation waits for. An operation whose home group is full should prefer groups that no other
/// operation holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Wait only for the home group.
    AtHome,
    /// Wait for every group: no other group may have room.
    Everywhere,
}

/// Inode that stores an attribute value, and its new reference count.
pub(crate) struct ValueReferences {
    pub(crate) handle: Handle,
    pub(crate) count: u64,
}

/// A running operation. If dropped before [`Ext4Core::atomically`] commits it, it leaves no trace.
pub struct Op<'a> {
    pub(crate) fs: &'a Ext4Core,
    // These fields are declared before the transaction, as [`InMemoryUndo`] requires.
    pub(crate) group_guards: HeldGroups<'a>,
    pub(crate) orphans: Pending<'a>,
    /// Changes of the usage of owners, if usage is counted.
    pub(crate) usage: UsageChanges<'a>,
    pub(crate) txn: Txn<'a>,
    /// Part of the reserve that the operation may use.
    pub(crate) claim: Claim,
    staged: SmallVec<[Staged; 2]>,
    pub(crate) freed_runs: SmallVec<[FreedRun; 4]>,
    pub(crate) freed_inodes: SmallVec<[Handle; 1]>,
    pub(crate) zeroed_runs: ZeroedRuns,
    /// Shared attribute blocks that an inode no longer refers to.
    pub(crate) released_attributes: SmallVec<[Block; 1]>,
    /// Inodes with attribute values whose reference counts change.
    pub(crate) counted_values: Vec<ValueReferences>,
}

impl RunOperations for Ext4Core {
    type Op<'a> = Op<'a>;

    #[inline]
    fn operation<'a>(&'a self, txn: Txn<'a>, claim: Claim) -> Op<'a> {
        Op::new(self, txn, claim)
    }

    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn has_busy(&self) -> bool {
        self.volume.groups.all().has_busy()
    }
}

impl Operation for Op<'_> {
    type Group = Group;

    fn hold_group(&mut self, group: Group) -> Outcome<()> {
        self.hold(group).map(drop)
    }

    fn groups_needed(&self) -> Option<SmallVec<[Group; 4]>> {
        self.group_guards.needed()
    }

    fn finish(&mut self) -> Outcome<()> {
        self.finish_put_off()
    }

    fn undos(&mut self) -> impl InMemoryUndo {
        (&mut self.group_guards, &mut self.orphans, &mut self.usage)
    }

    fn set_minor(&mut self) {
        self.txn.set_minor();
    }

    fn commit(self) {
        let (engine, is_due) = (&self.fs.engine, self.usage.is_checkpoint_due());
        self.txn.commit();
        if is_due {
            // A failure is reported to the next operation that starts.
            let _ = engine.checkpoint();
        }
    }
}

impl<'a> Op<'a> {
    #[inline]
    fn new(fs: &'a Ext4Core, txn: Txn<'a>, claim: Claim) -> Self {
        Self {
            fs,
            group_guards: HeldGroups::new(fs.volume.groups.all()),
            orphans: Pending::new(&fs.orphans),
            usage: UsageChanges::new(fs.volume.quota.get()),
            txn,
            claim,
            staged: SmallVec::new(),
            freed_runs: SmallVec::new(),
            freed_inodes: SmallVec::new(),
            zeroed_runs: ZeroedRuns::default(),
            released_attributes: SmallVec::new(),
            counted_values: Vec::new(),
        }
    }

    /// Holds a block until the end of the operation.
    pub(crate) fn buffer(&mut self, block: Block, tag: Tag) -> Result<BufferId> {
        Ok(self.txn.buffer(block.0, tag)?)
    }

    /// Holds a group until the end of the operation. Returns its index among the held groups.
    pub(crate) fn hold(&mut self, group: Group) -> Outcome<usize> {
        self.group_guards.hold(group)
    }

    /// Holds a group to allocate from. Waits for its lock only if `patience` says so.
    pub(crate) fn hold_patiently(
        &mut self,
        group: Group,
        home: Group,
        patience: Patience,
    ) -> Outcome<Option<usize>> {
        if group == home || patience == Patience::Everywhere {
            return self.hold(group).map(Some);
        }
        Ok(self.group_guards.try_hold(group))
    }

    /// Frees blocks of a file's data (whole clusters) at the commit and subtracts them from the file's block count.
    /// They are not reused before a checkpoint has made that durable.
    pub(crate) fn free_blocks(&mut self, file: &mut Handle, start: Block, len: u32) -> Outcome<()> {
        let clusters = len >> self.fs.volume.geometry.cluster_blocks_log;
        self.subtract_clusters(file, clusters)?;
        self.freed_runs.push(FreedRun { start, len });
        Ok(())
    }

    /// Frees a metadata block of a file like [`Op::free_blocks`], together with the cluster reserved for it. Its
    /// contents need not be written any more.
    pub(crate) fn free_metadata(&mut self, file: &mut Handle, block: Block) -> Outcome<()> {
        self.txn.forget(block.0);
        let geometry = &self.fs.volume.geometry;
        let (start, len) = (geometry.cluster_start(block), geometry.cluster_blocks());
        self.free_blocks(file, start, len)
    }

    /// Frees an inode at the commit. Its blocks must already be freed.
    pub(crate) fn free_inode(&mut self, handle: Handle) {
        self.freed_inodes.push(handle);
    }

    /// Writes `handle`'s fields at the commit.
    pub(crate) fn stage(&mut self, handle: Handle) {
        self.staged.push(Staged { handle, fresh: false, tail: None });
    }

    /// Writes `handle`'s fields at the commit if they differ from `before`.
    pub(crate) fn stage_if_changed(&mut self, handle: Handle, before: &Handle) {
        if handle.inode.as_bytes() != before.inode.as_bytes() {
            self.stage(handle);
        }
    }

    /// Writes `handle`'s fields and the rest of its slot at the commit.
    pub(crate) fn stage_with_tail(&mut self, handle: Handle, tail: Vec<u8>) {
        self.staged.push(Staged { handle, fresh: false, tail: Some(tail) });
    }

    /// Writes a new inode at the commit. Nothing of the old slot is kept.
    pub(crate) fn stage_new(&mut self, handle: Handle) {
        self.staged.push(Staged { handle, fresh: true, tail: None });
    }

    /// Writes a new inode and the rest of its slot at the commit.
    pub(crate) fn stage_new_with_tail(&mut self, handle: Handle, tail: Option<Vec<u8>>) {
        self.staged.push(Staged { handle, fresh: true, tail });
    }

    /// Reserves memory for `inodes` inodes that will be staged.
    pub(crate) fn expect_staged(&mut self, inodes: usize) {
        self.staged.reserve(inodes);
    }

    /// Runs the deferred steps. After an error the operation must be dropped.
    fn finish_put_off(&mut self) -> Outcome<()> {
        self.store_counted_values()?;
        self.free_noted_inodes()?;
        self.free_noted_blocks()?;
        self.release_noted_attributes()?;
        self.record_orphans()?;
        self.staged.sort_unstable_by_key(|s| (s.handle.block, s.handle.offset));
        for staged in std::mem::take(&mut self.staged) {
            self.link_orphans(Some((staged.handle.block, staged.handle.offset)))?;
            self.write_inode(&staged)?;
        }
        self.link_orphans(None)?;
        Ok(self.zeroed_runs.write(&self.fs.engine)?)
    }

    /// Returns whether an inode is free after the commit.
    pub(crate) fn makes_free(&self, ino: vfs::Ino) -> bool {
        let gone = |s: &Staged| s.fresh && s.handle.ino() == ino && s.handle.inode.mode() == 0;
        self.staged.iter().any(gone)
    }

    fn write_inode(&mut self, staged: &Staged) -> Outcome<()> {
        let volume = &self.fs.volume;
        let Handle { owner, inode, block, offset } = &staged.handle;
        let id = self.txn.buffer(block.0, BlockKind::InodeTable.plain())?;
        let inode_size = volume.geometry.inode_size;
        // Marks say which slots have verified checksums. Those of other slots remain valid.
        let slot = self.txn.edit_noted(id, *offset..offset + usize::from(inode_size));
        let mut next_orphan = [0; DTIME_BYTES.end - DTIME_BYTES.start];
        next_orphan.copy_from_slice(&slot[DTIME_BYTES]);
        if let Some(quota) = self.usage.quota() {
            let is_gone = inode.mode() == 0;
            let old = (is_gone || !staged.fresh).then(|| Inode::from_slot(slot));
            let account = |inode: &Inode| Account::of(quota, volume, owner.ino, inode);
            let new = if is_gone { None } else { account(inode) };
            self.usage.note(owner.ino, old.as_ref().and_then(account), new);
        }
        if staged.fresh {
            slot.fill(0);
        }
        let fields = inode.as_bytes();
        slot[..fields.len()].copy_from_slice(fields);
        if !staged.fresh {
            // The operation of another orphan may have changed it since the fields were read.
            slot[DTIME_BYTES].copy_from_slice(&next_orphan);
        }
        if let Some(tail) = &staged.tail {
            let start = slot.len() - tail.len();
            slot[start..].copy_from_slice(tail);
        }
        if volume.checksums {
            inode::seal_slot(owner.seed, slot);
            self.txn.mark(id, slot_mark(*offset, inode_size.into()));
        }
        Ok(())
    }

    /// Returns an error about damage in a held block.
    pub(crate) fn corrupt(&self, id: BufferId, c: Corruption, owner: BlockOwner) -> vfs::Error {
        self.txn.corrupt(id, c).of_inode(owner.ino.0).into()
    }
}
