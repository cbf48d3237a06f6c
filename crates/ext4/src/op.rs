//! One operation: a transaction, the groups it allocates from, what it frees, and the inodes it will
//! write.
//!
//! Lock order within an operation: inode locks (taken before it starts) → blocks of directories,
//! extent trees and attributes of the locked inodes → groups, in ascending order → blocks that
//! different inodes share: attribute blocks, orphan blocks, the superblock, then inode tables, in
//! ascending order. What comes late is put off: blocks and inodes to free, orphans and changed inodes
//! are only noted, and done when the operation commits.
//!
//! A group that is wanted out of order is only tried. If somebody else has it, the operation is taken
//! back and started again with all the groups it is known to need ([`Ext4::atomically`]).

use std::ops::Range;

use smallvec::SmallVec;
use transaction::{BufferId, Corruption, Tag, Txn};
use vfs::reserve::Claim;
use vfs::{Error, Result};

use crate::Ext4;
use crate::alloc::groups::Lease;
use crate::format::address::{Block, Group};
use crate::format::inode::{self, DTIME_BYTES, Inode, Owner};
use crate::fs::Mode;
use crate::kind::Kind;
use crate::orphan::Pending;
use crate::quota::{Account, Changes};
use crate::xattr::Counted;

pub(crate) use crate::read::inode::Handle;

struct Staged {
    handle: Handle,
    fresh: bool,
    /// What follows the fixed fields, if it changes.
    tail: Option<Vec<u8>>,
}

/// A run of blocks to be given back.
#[derive(Clone, Copy)]
pub(crate) struct FreedRun {
    pub(crate) start: Block,
    pub(crate) len: u32,
}

/// Bytes of a file's blocks that become zeros.
#[derive(Clone)]
pub(crate) struct ZeroedRun {
    pub(crate) start: Block,
    /// Counted from the start of the first block.
    pub(crate) bytes: Range<u64>,
}

/// Which groups an allocation waits for. One that is full and must look elsewhere does best where
/// nobody else is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// For the group where the new thing belongs.
    AtHome,
    /// For every group: there may be no other that has room.
    Everywhere,
}

/// Checkpoints that an operation which frees waits for, if others are first to take what each of them
/// makes usable.
const RELIEFS_TO_FREE_MAX: u32 = 16;

/// Groups that an operation needs before it starts.
pub(crate) type GroupSet = SmallVec<[Group; 4]>;

/// An operation. Dropped without [`Ext4::atomically`], it leaves no trace.
pub(crate) struct Op<'a> {
    pub(crate) fs: &'a Ext4,
    // Groups are let go before the transaction rolls back: nobody can see the bitmaps in between,
    // because the transaction still holds them.
    pub(crate) leases: SmallVec<[Lease<'a>; 2]>,
    // So are slots of the orphan file, and the list of orphans.
    pub(crate) orphans: Pending<'a>,
    pub(crate) txn: Txn<'a>,
    /// What of the reserve it may take.
    pub(crate) claim: Claim,
    staged: SmallVec<[Staged; 2]>,
    pub(crate) freed_runs: SmallVec<[FreedRun; 4]>,
    pub(crate) freed_inodes: SmallVec<[Handle; 1]>,
    /// What the file shows of these would not come back if the operation failed, so it goes last.
    pub(crate) zeroed_runs: SmallVec<[ZeroedRun; 1]>,
    /// Attribute blocks of several inodes, one of which lets go of it.
    pub(crate) released_attributes: SmallVec<[Block; 1]>,
    /// Inodes with values of attributes whose counts of references change.
    pub(crate) counted_values: Vec<Counted>,
    /// What changes of the usage of owners, where that is counted.
    pub(crate) usage: Changes,
    /// The group that somebody else had when it was wanted out of order.
    contended: Option<Group>,
}

impl Ext4 {
    /// Runs `body` in an operation and commits it. `body` runs again from the start if a group was
    /// wanted that could not be waited for, or if all free space waits for a checkpoint.
    pub(crate) fn atomically<R>(&self, body: impl FnMut(&mut Op<'_>) -> Result<R>) -> Result<R> {
        self.atomically_with(Claim::Ordinary, body, |_| Ok(()))
    }

    /// As [`Ext4::atomically`], for what gives space back or ends what a crash left: it may take the
    /// reserve, and waits for space that a checkpoint makes usable as often as there is some.
    pub(crate) fn atomically_freeing<R>(
        &self,
        body: impl FnMut(&mut Op<'_>) -> Result<R>,
    ) -> Result<R> {
        self.atomically_with(Claim::Freeing, body, |_| Ok(()))
    }

    /// As [`Ext4::atomically`], and runs `last` when nothing of the operation can fail any more, just
    /// before it commits: for what could not be taken back.
    pub(crate) fn atomically_then<R>(
        &self,
        body: impl FnMut(&mut Op<'_>) -> Result<R>,
        last: impl FnMut(&R) -> Result<()>,
    ) -> Result<R> {
        self.atomically_with(Claim::Ordinary, body, last)
    }

    /// As the others, with a claim to the reserve.
    pub(crate) fn atomically_with<R>(
        &self,
        claim: Claim,
        mut body: impl FnMut(&mut Op<'_>) -> Result<R>,
        mut last: impl FnMut(&R) -> Result<()>,
    ) -> Result<R> {
        let claim = if self.mode == Mode::Fresh { Claim::Unbounded } else { claim };
        let mut groups = GroupSet::new();
        let mut reliefs = if claim == Claim::Freeing { RELIEFS_TO_FREE_MAX } else { 1 };
        loop {
            let mut op = Op::begin(self, claim)?;
            for &group in &groups {
                op.lease(group)?;
            }
            let outcome = body(&mut op).and_then(|value| {
                op.finish()?;
                last(&value)?;
                Ok(value)
            });
            if let Some(group) = op.contended {
                groups.extend(op.leases.iter().map(Lease::group));
                groups.push(group);
                groups.sort_unstable();
                groups.dedup();
                continue;
            }
            if outcome.is_ok() {
                op.keep();
                return outcome;
            }
            drop(op);
            let short = matches!(outcome, Err(Error::NoSpace));
            if !short || reliefs == 0 || !self.volume.groups.has_busy() {
                return outcome;
            }
            reliefs -= 1;
            self.engine.checkpoint()?;
        }
    }
}

impl<'a> Op<'a> {
    pub(crate) fn begin(fs: &'a Ext4, claim: Claim) -> Result<Self> {
        let txn = fs.engine.begin()?;
        Ok(Self {
            fs,
            leases: SmallVec::new(),
            orphans: Pending::new(&fs.orphans),
            txn,
            claim,
            staged: SmallVec::new(),
            freed_runs: SmallVec::new(),
            freed_inodes: SmallVec::new(),
            zeroed_runs: SmallVec::new(),
            released_attributes: SmallVec::new(),
            counted_values: Vec::new(),
            usage: Changes::default(),
            contended: None,
        })
    }

    /// Holds a block to the end of the operation.
    pub(crate) fn buffer(&mut self, block: Block, tag: Tag) -> Result<BufferId> {
        Ok(self.txn.buffer(block.0, tag)?)
    }

    /// Holds a group to the end of the operation; its place among the leases. If it is to be taken
    /// out of order and somebody else has it, the operation must be started again, which the error
    /// brings about.
    pub(crate) fn lease(&mut self, group: Group) -> Result<usize> {
        if let Some(at) = self.leases.iter().position(|l| l.group() == group) {
            return Ok(at);
        }
        let groups = &self.fs.volume.groups;
        let in_order = self.leases.iter().all(|l| l.group() < group);
        let lease = if in_order { Some(groups.lease(group)) } else { groups.try_lease(group) };
        let Some(lease) = lease else {
            self.contended = Some(group);
            return Err(Error::NoSpace);
        };
        self.leases.push(lease);
        Ok(self.leases.len() - 1)
    }

    /// Holds a group that something may be allocated from, if it is worth waiting for.
    pub(crate) fn lease_patiently(
        &mut self,
        group: Group,
        home: Group,
        patience: Patience,
    ) -> Result<Option<usize>> {
        if group == home || patience == Patience::Everywhere {
            return self.lease(group).map(Some);
        }
        if let Some(at) = self.leases.iter().position(|l| l.group() == group) {
            return Ok(Some(at));
        }
        let Some(lease) = self.fs.volume.groups.try_lease(group) else { return Ok(None) };
        self.leases.push(lease);
        Ok(Some(self.leases.len() - 1))
    }

    /// Gives blocks of a file's data back when the operation commits, and counts them off the file:
    /// whole clusters. They are not handed out again before a checkpoint has made that durable.
    pub(crate) fn free_blocks(&mut self, file: &mut Handle, start: Block, len: u32) -> Result<()> {
        let clusters = len >> self.fs.volume.geometry.cluster_blocks_log;
        self.subtract_clusters(file, clusters)?;
        self.freed_runs.push(FreedRun { start, len });
        Ok(())
    }

    /// Gives a metadata block of a file back as [`Op::free_blocks`] does, with the cluster that it has
    /// for itself; its contents need not be written any more.
    pub(crate) fn free_metadata(&mut self, file: &mut Handle, block: Block) -> Result<()> {
        self.txn.forget(block.0);
        let geometry = &self.fs.volume.geometry;
        let (start, len) = (geometry.cluster_start(block), geometry.cluster_blocks());
        self.free_blocks(file, start, len)
    }

    /// Makes an inode free when the operation commits. Its blocks must be gone already.
    pub(crate) fn free_inode(&mut self, handle: Handle) {
        self.freed_inodes.push(handle);
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

    /// Writes a new inode, and what follows its fixed fields, when the operation commits.
    pub(crate) fn stage_new_with_tail(&mut self, handle: Handle, tail: Option<Vec<u8>>) {
        self.staged.push(Staged { handle, fresh: true, tail });
    }

    /// Does what was put off. After an error the operation must be dropped.
    fn finish(&mut self) -> Result<()> {
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
        for run in std::mem::take(&mut self.zeroed_runs) {
            self.fs.write_zeros(run.start, run.bytes.start, run.bytes.end)?;
        }
        Ok(())
    }

    /// Whether an inode is free once the operation has committed.
    pub(crate) fn makes_free(&self, ino: vfs::Ino) -> bool {
        let gone = |s: &Staged| s.fresh && s.handle.ino() == ino && s.handle.inode.mode() == 0;
        self.staged.iter().any(gone)
    }

    /// Joins a finished operation to the running checkpoint.
    fn keep(mut self) {
        self.fs.volume.groups.keep(self.leases.drain(..));
        self.orphans.keep();
        // Before the transaction ends, so that one checkpoint has both.
        let is_due = !self.usage.is_empty()
            && self.fs.volume.quota.get().is_some_and(|quota| quota.apply(&self.usage));
        let engine = &self.fs.engine;
        self.txn.commit();
        if is_due {
            // A failure is reported to whoever begins the next operation.
            let _ = engine.checkpoint();
        }
    }

    fn write_inode(&mut self, staged: &Staged) -> Result<()> {
        let volume = &self.fs.volume;
        let Handle { owner, inode, block, offset } = &staged.handle;
        let id = self.txn.buffer(block.0, Kind::InodeTable.plain())?;
        let slot = self.txn.edit(id, *offset..offset + usize::from(volume.geometry.inode_size));
        let mut next_orphan = [0; DTIME_BYTES.end - DTIME_BYTES.start];
        next_orphan.copy_from_slice(&slot[DTIME_BYTES]);
        if let Some(quota) = volume.quota.get() {
            let is_gone = inode.mode() == 0;
            let old = (is_gone || !staged.fresh).then(|| Inode::from_slot(slot));
            let account = |inode: &Inode| Account::of(quota, volume, owner.ino, inode);
            let new = if is_gone { None } else { account(inode) };
            self.usage.note(old.as_ref().and_then(account), new);
        }
        if staged.fresh {
            slot.fill(0);
        }
        let fields = inode.as_bytes();
        slot[..fields.len()].copy_from_slice(fields);
        if !staged.fresh {
            // Another orphan's operation may have changed it since the fields were read.
            slot[DTIME_BYTES].copy_from_slice(&next_orphan);
        }
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
