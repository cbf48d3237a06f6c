//! One operation: a transaction, the groups it allocates from, the blocks and inodes it frees, and the inodes it
//! writes.
//!
//! Lock order within an operation: inode locks (taken before it starts) → blocks of directories, maps and attributes of
//! the locked inodes → groups in ascending order, with the blocks of their trees and headers → blocks of inodes in
//! ascending order. Work that would violate this order is deferred: blocks and inodes to free and changed inodes are
//! noted, and processed at the commit.
//!
//! [`HeldGroups`] describes how groups are held, and what happens if a group is busy and out of order.

pub(crate) mod held;
pub(crate) mod source;

use operations::{InMemoryUndo, Mode, Operation, Outcome, RunOperations};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut, Range};

use engine::{BufferId, Engine, Tag, Txn, slot_mark};
use operations::data::ZeroedRuns;
use operations::reserve::Claim;
use smallvec::SmallVec;
use vfs::{Ino, Result};

use crate::XfsCore;
use crate::alloc::Freed;
use crate::alloc::ags::HeldGroups;
use crate::alloc::realtime::HeldTree;
use crate::dir::{TakenStates, Wholes};
use crate::format::address::{AgNumber, Block};
use crate::format::inode::{self, CHANGECOUNT_OFFSET, CRC_OFFSET, NEXT_UNLINKED_OFFSET, Time};
use crate::inode::{ChunkChanges, Handle};
use crate::kind::BlockKind;
use crate::orphan::Pending;
use crate::quota::{Account, UsageChanges, moves_realtime};

/// An operation. It leaves no trace if dropped before [`XfsCore::atomically`] commits it.
pub struct Op<'a> {
    pub(crate) fs: &'a XfsCore,
    // Declared before the transaction, so that they are dropped first: see [`InMemoryUndo`].
    pub(crate) group_guards: HeldGroups<'a>,
    pub(crate) unlinked: Pending<'a>,
    /// In-memory states of directories being changed.
    pub(crate) dirs: TakenStates<'a>,
    /// Blocks of inode chunks that were allocated or freed.
    pub(crate) inode_blocks: ChunkChanges<'a>,
    /// Changes of the usage of owners, if usage is counted.
    pub(crate) usage: UsageChanges<'a>,
    pub(crate) txn: Txn<'a>,
    /// The part of the reserve that it may take.
    pub(crate) claim: Claim,
    /// Directory blocks that span several file-system blocks.
    pub(crate) wholes: Wholes,
    /// Inodes to write, including new ones.
    staged: Handles,
    pub(crate) freed: SmallVec<[Freed; 4]>,
    pub(crate) freed_inodes: Handles,
    pub(crate) zeroed_runs: ZeroedRuns,
    /// Blocks of the realtime bitmap and summary that it has changed.
    pub(crate) realtime_blocks: SmallVec<[u64; 4]>,
    /// Inodes with trees of realtime groups that it holds.
    pub(crate) realtime_trees: Vec<HeldTree>,
}

/// Handles of an operation. Each is as large as an inode, so they are kept outside the operation, in memory that the
/// thread reuses for the next one.
#[derive(Default)]
pub(crate) struct Handles(Vec<Handle>);

thread_local! {
    static HANDLES: RefCell<Vec<Vec<Handle>>> = const { RefCell::new(Vec::new()) };
}

/// Maximum number of handles whose memory is kept for the next operation.
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

/// Bytes of a slot that are compared, and written if they differ, as one piece: the unit in which the engine tracks
/// changes of blocks of 4 KiB.
const DIFF_BYTES: usize = 64;
/// The piece with the checksum and the change count, as a mask.
const SEALED_PIECE: u32 = 1 << (CRC_OFFSET / DIFF_BYTES);
const _: () = assert!(CRC_OFFSET / DIFF_BYTES == CHANGECOUNT_OFFSET / DIFF_BYTES);

/// Returns a mask of the pieces of two slots that differ. Bit 0 is the first piece. Slots have 256 to 2048 bytes, so
/// there are at most 32 pieces.
fn differing_pieces(old: &[u8], new: &[u8]) -> u32 {
    let pieces = old.as_chunks::<DIFF_BYTES>().0.iter().zip(new.as_chunks::<DIFF_BYTES>().0);
    let mut mask = 0;
    for (at, (old, new)) in pieces.enumerate() {
        // Unlike `==`, this makes no call.
        let words = old.as_chunks::<8>().0.iter().zip(new.as_chunks::<8>().0);
        let differing = words
            .fold(0, |all, (old, new)| all | u64::from_ne_bytes(*old) ^ u64::from_ne_bytes(*new));
        mask |= u32::from(differing != 0) << at;
    }
    mask
}

/// Removes the first run of pieces from a mask and returns its bytes in the slot.
fn take_run(mask: &mut u32) -> Option<Range<usize>> {
    if *mask == 0 {
        return None;
    }
    let first = mask.trailing_zeros();
    let len = (*mask >> first).trailing_ones();
    *mask &= !(u32::MAX >> (u32::BITS - len) << first);
    Some(first as usize * DIFF_BYTES..(first + len) as usize * DIFF_BYTES)
}

impl RunOperations for XfsCore {
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
        self.volume.ags.has_busy()
    }
}

impl Operation for Op<'_> {
    type Group = AgNumber;

    fn hold_group(&mut self, group: AgNumber) -> Outcome<()> {
        self.ag(group).map(drop)
    }

    fn groups_needed(&self) -> Option<SmallVec<[AgNumber; 4]>> {
        self.group_guards.needed()
    }

    fn finish(&mut self) -> Outcome<()> {
        self.finish_put_off()
    }

    fn undos(&mut self) -> impl InMemoryUndo {
        let of_inodes = (&mut self.unlinked, &mut self.inode_blocks, &mut self.usage);
        (&mut self.dirs, &mut self.group_guards, of_inodes)
    }

    fn set_minor(&mut self) {
        self.txn.set_minor();
    }

    // Inlined, so that the operation is not moved.
    #[inline]
    fn commit(self) {
        self.txn.commit();
    }
}

impl<'a> Op<'a> {
    #[inline]
    fn new(fs: &'a XfsCore, txn: Txn<'a>, claim: Claim) -> Self {
        Self {
            fs,
            group_guards: HeldGroups::new(&fs.volume.ags),
            unlinked: Pending::new(&fs.unlinked),
            dirs: TakenStates::new(&fs.dirs),
            inode_blocks: ChunkChanges::new(&fs.gone),
            usage: UsageChanges::new(fs.volume.quotas.get()),
            txn,
            claim,
            wholes: Wholes::default(),
            staged: Handles::take(),
            freed: SmallVec::new(),
            freed_inodes: Handles::take(),
            zeroed_runs: ZeroedRuns::default(),
            realtime_blocks: SmallVec::new(),
            realtime_trees: Vec::new(),
        }
    }

    /// Holds a block until the end of the operation.
    pub(crate) fn buffer(&mut self, block: Block, tag: Tag) -> Result<BufferId> {
        Ok(self.txn.buffer(block.0, tag)?)
    }

    /// Writes `handle` when the operation commits.
    pub(crate) fn stage(&mut self, handle: Handle) {
        self.staged.push(handle);
    }

    /// Writes `handle` when the operation commits, if it differs from `before`.
    pub(crate) fn stage_if_changed(&mut self, handle: Handle, before: &Handle) {
        if handle.inode != before.inode {
            self.stage(handle);
        }
    }

    /// Cancels writing an inode, because it is being freed.
    pub(crate) fn unstage(&mut self, ino: Ino) {
        self.staged.retain(|handle| handle.ino() != ino);
    }

    /// Cancels writing the inodes of a block, because the block is being freed.
    pub(crate) fn unstage_block(&mut self, block: Block) {
        self.staged.retain(|handle| handle.block != block);
    }

    /// Does the deferred work. After an error the operation must be dropped.
    fn finish_put_off(&mut self) -> Outcome<()> {
        // Groups come before blocks of inodes in the lock order. Links of unlinked lists are in the same blocks as
        // staged inodes, so both are written in one ascending pass.
        self.write_wholes()?;
        self.finish_frees()?;
        self.stage_realtime_trees();
        self.record_unlinked()?;
        // If an inode was staged more than once, the last version counts.
        self.staged.sort_by_key(|h| (h.block, h.offset));
        let mut staged = std::mem::take(&mut self.staged);
        for handle in &mut *staged {
            self.write_links(Some(handle.block))?;
            self.write_inode(handle)?;
        }
        self.write_links(None)?;
        self.enter_usage()?;
        Ok(self.zeroed_runs.write(&self.fs.engine)?)
    }

    /// Writes the bytes of a handle that differ into its slot, and increments the change count.
    fn write_inode(&mut self, handle: &mut Handle) -> Outcome<()> {
        let id = self.buffer(handle.block, BlockKind::Inodes.plain())?;
        let slot = handle.offset..handle.offset + handle.inode.as_bytes().len();
        let old = &self.txn.data(id)[slot];
        // The link of the unlinked list is not taken from the handle, because operations on other inodes of the list
        // change it, unless the inode becomes free. The checksum is recomputed below.
        let own_end = if handle.inode.mode() == 0 { CRC_OFFSET } else { NEXT_UNLINKED_OFFSET };
        let has_checksum = self.fs.volume.geometry.features.crc();
        let others = own_end..if has_checksum { CRC_OFFSET + 4 } else { CRC_OFFSET };
        handle.inode.as_mut_bytes()[others.clone()].copy_from_slice(&old[others]);
        let mut mask = differing_pieces(old, handle.inode.as_bytes());
        if mask == 0 {
            return Ok(());
        }
        if self.usage.quotas().is_some() {
            let accounts = (Account::of_slot(old), Account::of_slot(handle.inode.as_bytes()));
            if accounts.0 != accounts.1 {
                let is_moved = moves_realtime(accounts.0.as_ref(), accounts.1.as_ref());
                let moved = is_moved.then(|| self.realtime_blocks(handle)).transpose()?;
                let now = handle.inode.time(Time::Change).map_or(0, |time| time.sec);
                self.usage.note(handle.ino(), accounts, now, moved);
            }
        }
        handle.inode.bump_changecount();
        // Slots are verified each time they are loaded, not only when their block is read.
        inode::seal_slot(handle.inode.as_mut_bytes());
        mask |= SEALED_PIECE;
        let new = handle.inode.as_bytes();
        while let Some(run) = take_run(&mut mask) {
            let place = handle.offset + run.start..handle.offset + run.end;
            // Marks say which slots have verified checksums. Those of other slots remain valid.
            self.txn.edit_noted(id, place).copy_from_slice(&new[run]);
        }
        self.txn.mark(id, slot_mark(handle.offset, self.fs.volume.geometry.inode_size()));
        Ok(())
    }
}
