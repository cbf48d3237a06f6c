//! One operation: a transaction, the groups it allocates from, what it frees, and the inodes it will
//! write.
//!
//! Lock order within an operation: inode locks (taken before it starts) → blocks of directories, maps
//! and attributes of the locked inodes → groups, in ascending order, and with them the blocks of their
//! trees and headers → blocks of inodes, in ascending order. What comes late is put off: blocks and
//! inodes to free and changed inodes are only noted, and done when the operation commits.
//!
//! A group that is wanted out of order is only tried. If somebody else has it, the operation is taken
//! back and started again with all the groups it is known to need ([`Xfs::atomically`]).

use std::ops::Range;

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use smallvec::SmallVec;
use transaction::{BufferId, Tag, Txn};
use vfs::reserve::Claim;
use vfs::{Error, Ino, Result};

use crate::Xfs;
use crate::alloc::Freed;
use crate::alloc::ags::Lease;
use crate::dir::{Taken, Wholes};
use crate::format::address::{AgNumber, Block};
use crate::format::inode::{self, CRC_OFFSET, NEXT_UNLINKED_OFFSET};
use crate::fs::Mode;
use crate::inode::{Handle, InodeBlock};
use crate::kind::Kind;
use crate::unlinked::Pending;

/// Checkpoints that an operation which frees waits for, if others are first to take what each of them
/// makes usable.
const RELIEFS_TO_FREE_MAX: u32 = 16;

/// Groups that an operation needs before it starts.
type AgSet = SmallVec<[AgNumber; 4]>;

/// Bytes of a file's blocks that become zeros.
#[derive(Clone)]
pub(crate) struct ZeroedRun {
    pub(crate) start: Block,
    /// Counted from the start of the first block.
    pub(crate) bytes: Range<u64>,
}

/// An operation. Dropped without [`Xfs::atomically`], it leaves no trace.
pub(crate) struct Op<'a> {
    pub(crate) fs: &'a Xfs,
    // Groups are let go before the transaction rolls back: nobody can see their trees in between,
    // because the transaction still holds the blocks.
    pub(crate) leases: SmallVec<[Lease<'a>; 2]>,
    // So are lists of unlinked inodes.
    pub(crate) unlinked: Pending<'a>,
    /// What is known of directories that are changed. It goes back before the transaction lets
    /// checkpoints be closed, which bring into blocks what waits here.
    pub(crate) dirs: Taken<'a>,
    pub(crate) txn: Txn<'a>,
    /// What of the reserve it may take.
    pub(crate) claim: Claim,
    /// Directory blocks of several blocks.
    pub(crate) wholes: Wholes,
    /// Inodes to write, those of new ones included.
    staged: Handles,
    pub(crate) freed: SmallVec<[Freed; 4]>,
    pub(crate) freed_inodes: Handles,
    /// Blocks of inodes that were made or given back.
    pub(crate) inode_blocks: SmallVec<[InodeBlock; 8]>,
    /// What the file shows of these would not come back if the operation failed, so it goes last.
    pub(crate) zeroed_runs: SmallVec<[ZeroedRun; 1]>,
    /// The group that somebody else had when it was wanted out of order.
    contended: Option<AgNumber>,
}

/// Handles of an operation. Each is as large as an inode, so they lie beside the operation, in memory
/// that the thread keeps from one to the next.
#[derive(Default)]
pub(crate) struct Handles(Vec<Handle>);

thread_local! {
    static HANDLES: RefCell<Vec<Vec<Handle>>> = const { RefCell::new(Vec::new()) };
}

/// Handles that memory is kept for when an operation had more.
const HANDLES_KEPT: usize = 8;

impl Handles {
    fn take() -> Self {
        Self(HANDLES.with_borrow_mut(Vec::pop).unwrap_or_default())
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        if self.0.capacity() > 0 {
            let mut handles = std::mem::take(&mut self.0);
            handles.clear();
            handles.shrink_to(HANDLES_KEPT);
            HANDLES.with_borrow_mut(|kept| kept.push(handles));
        }
    }
}

impl Deref for Handles {
    type Target = Vec<Handle>;

    fn deref(&self) -> &Vec<Handle> {
        &self.0
    }
}

impl DerefMut for Handles {
    fn deref_mut(&mut self) -> &mut Vec<Handle> {
        &mut self.0
    }
}

/// Bytes of a slot that are compared, and written if they differ, at once: what the engine keeps track
/// of in blocks of 4 KiB.
const DIFF_BYTES: usize = 64;

impl Xfs {
    /// Runs `body` in an operation and commits it. `body` runs again from the start if a group was
    /// wanted that could not be waited for, or if space ran out while freed space waits for a checkpoint.
    pub(crate) fn atomically<R>(&self, body: impl FnMut(&mut Op<'_>) -> Result<R>) -> Result<R> {
        self.atomically_with(Claim::Ordinary, body, |_| Ok(()))
    }

    /// As [`Xfs::atomically`], for what gives space back or ends what a crash left: it may take the
    /// reserve, and waits for space that a checkpoint makes usable as often as there is some.
    pub(crate) fn atomically_freeing<R>(
        &self,
        body: impl FnMut(&mut Op<'_>) -> Result<R>,
    ) -> Result<R> {
        self.atomically_with(Claim::Freeing, body, |_| Ok(()))
    }

    /// As [`Xfs::atomically`], and runs `last` when nothing of the operation can fail any more, just
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
        let mut ags = AgSet::new();
        let mut reliefs = if claim == Claim::Freeing { RELIEFS_TO_FREE_MAX } else { 1 };
        loop {
            let mut op = Op::begin(self, claim)?;
            for &ag in &ags {
                op.lease(ag)?;
            }
            let outcome = body(&mut op).and_then(|value| {
                op.finish()?;
                last(&value)?;
                Ok(value)
            });
            if let Some(ag) = op.contended {
                ags.extend(op.leases.iter().map(Lease::number));
                ags.push(ag);
                ags.sort_unstable();
                ags.dedup();
                continue;
            }
            if outcome.is_ok() {
                op.keep();
                return outcome;
            }
            drop(op);
            let short = matches!(outcome, Err(Error::NoSpace));
            if !short || reliefs == 0 || !self.volume.ags.has_busy() {
                return outcome;
            }
            reliefs -= 1;
            self.engine.checkpoint()?;
        }
    }
}

impl<'a> Op<'a> {
    pub(crate) fn begin(fs: &'a Xfs, claim: Claim) -> Result<Self> {
        let txn = fs.engine.begin()?;
        Ok(Self {
            fs,
            leases: SmallVec::new(),
            unlinked: Pending::new(&fs.unlinked),
            dirs: Taken::new(&fs.dirs),
            txn,
            claim,
            wholes: Wholes::default(),
            staged: Handles::take(),
            freed: SmallVec::new(),
            freed_inodes: Handles::take(),
            inode_blocks: SmallVec::new(),
            zeroed_runs: SmallVec::new(),
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
    pub(crate) fn lease(&mut self, ag: AgNumber) -> Result<usize> {
        if let Some(at) = self.leases.iter().position(|l| l.number() == ag) {
            return Ok(at);
        }
        let ags = &self.fs.volume.ags;
        let in_order = self.leases.iter().all(|l| l.number() < ag);
        let lease = if in_order { Some(ags.lease(ag)) } else { ags.try_lease(ag) };
        let Some(lease) = lease else {
            self.contended = Some(ag);
            return Err(Error::NoSpace);
        };
        self.leases.push(lease);
        Ok(self.leases.len() - 1)
    }

    /// Holds a group if it is held already or nobody else has it.
    pub(crate) fn try_lease(&mut self, ag: AgNumber) -> Option<usize> {
        if let Some(at) = self.leases.iter().position(|l| l.number() == ag) {
            return Some(at);
        }
        self.leases.push(self.fs.volume.ags.try_lease(ag)?);
        Some(self.leases.len() - 1)
    }

    /// Writes `handle` when the operation commits.
    pub(crate) fn stage(&mut self, handle: Handle) {
        self.staged.push(handle);
    }

    /// Writes `handle` when the operation commits, if it is not what it was.
    pub(crate) fn stage_if_changed(&mut self, handle: Handle, before: &Handle) {
        if handle.inode != before.inode {
            self.stage(handle);
        }
    }

    /// Does not write an inode after all: it is freed.
    pub(crate) fn unstage(&mut self, ino: Ino) {
        self.staged.retain(|handle| handle.ino() != ino);
    }

    /// Does not write the inodes of a block after all: it is given back.
    pub(crate) fn unstage_block(&mut self, block: Block) {
        self.staged.retain(|handle| handle.block != block);
    }

    /// Does what was put off. After an error the operation must be dropped.
    fn finish(&mut self) -> Result<()> {
        self.write_wholes()?;
        self.finish_frees()?;
        self.record_unlinked()?;
        // An inode that was staged more than once is as it was staged last.
        self.staged.sort_by_key(|h| (h.block, h.offset));
        let mut staged = std::mem::take(&mut self.staged);
        for handle in &mut *staged {
            self.write_links(Some(handle.block))?;
            self.write_inode(handle)?;
        }
        self.write_links(None)?;
        for run in std::mem::take(&mut self.zeroed_runs) {
            self.fs.write_zeros(run.start, run.bytes.start, run.bytes.end)?;
        }
        Ok(())
    }

    /// Joins a finished operation to the running checkpoint.
    fn keep(mut self) {
        self.dirs.keep();
        drop(self.dirs);
        self.fs.volume.ags.keep(self.leases.drain(..));
        self.unlinked.keep();
        self.fs.gone.note(&self.inode_blocks);
        self.txn.commit();
    }

    /// Brings the bytes of a handle that differ into its slot, and counts the change.
    fn write_inode(&mut self, handle: &mut Handle) -> Result<()> {
        let id = self.buffer(handle.block, Kind::Inodes.plain())?;
        let slot = handle.offset..handle.offset + handle.inode.as_bytes().len();
        let old = &self.txn.data(id)[slot];
        // The list of unlinked inodes is others' to change, unless the inode becomes free: it does not
        // come from the handle. Nor does the checksum.
        let own_end = if handle.inode.mode() == 0 { CRC_OFFSET } else { NEXT_UNLINKED_OFFSET };
        let others = own_end..CRC_OFFSET + 4;
        handle.inode.as_mut_bytes()[others.clone()].copy_from_slice(&old[others]);
        if handle.inode.as_bytes() == old {
            return Ok(());
        }
        handle.inode.bump_changecount();
        // Slots are checked each time they are loaded, not only when their block is read.
        inode::seal_slot(handle.inode.as_mut_bytes());
        let new = handle.inode.as_bytes();
        let mut start = 0;
        while start < new.len() {
            let end = new.len().min(start + DIFF_BYTES);
            let held = &self.txn.data(id)[handle.offset..][start..end];
            if held != &new[start..end] {
                let place = handle.offset + start..handle.offset + end;
                self.txn.edit(id, place).copy_from_slice(&new[start..end]);
            }
            start = end;
        }
        Ok(())
    }
}
