//! Accounts of inodes, and the changes of usage by an operation.

use operations::{InMemoryUndo, Outcome};
use smallvec::SmallVec;
use vfs::{Error, Ino};

use super::Quotas;
use super::change::{Delta, UsageChange};
use super::ledger::{Id, Refusal};
use crate::format::bytes::{be16, be32, be64};
use crate::format::inode::{flags, flags2};
use crate::format::quota::QuotaKind;

/// Byte offsets in an inode: mode, owners, the halves of the project, blocks, flags, second flags.
const MODE: usize = 2;
const UID: usize = 8;
const GID: usize = 12;
const PROJECT_LOW: usize = 20;
const PROJECT_HIGH: usize = 22;
const NBLOCKS: usize = 64;
const FLAGS: usize = 90;
const FLAGS2: usize = 120;

/// Owners of an inode and the blocks that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// Identifiers by kind of quota.
    ids: [u32; 3],
    /// Blocks of both sections.
    blocks: u64,
    is_realtime: bool,
}

/// An inode before and after an operation, and its blocks of the realtime section.
#[derive(Clone, Copy, Debug)]
struct AccountChange {
    old: Option<Account>,
    new: Option<Account>,
    /// Realtime blocks in `old` and `new`; only the difference counts if the owners stay.
    realtime: [i64; 2],
}

/// The changes of usage by an operation.
pub(crate) struct UsageChanges<'a> {
    /// The quotas; `None` if nothing is counted.
    quotas: Option<&'a Quotas>,
    changes: SmallVec<[UsageChange; 3]>,
    /// Changes of the number of realtime blocks that inodes map.
    realtime: Vec<(Ino, i64)>,
    /// Largest change time of the inodes, in seconds since the epoch.
    now: i64,
    /// True while the changes are in the ledger and the operation may still fail.
    is_entered: bool,
}

impl Account {
    /// Returns the account of the inode in a slot of version 3, or `None` if the slot is free, or the inode belongs to the
    /// metadata directory tree, which has no owner.
    pub(crate) fn of_slot(slot: &[u8]) -> Option<Self> {
        if be16(slot, MODE) == 0 || be64(slot, FLAGS2) & flags2::METADATA != 0 {
            return None;
        }
        let project =
            u32::from(be16(slot, PROJECT_HIGH)) << 16 | u32::from(be16(slot, PROJECT_LOW));
        let blocks = be64(slot, NBLOCKS);
        let is_realtime = be16(slot, FLAGS) & flags::REALTIME != 0;
        Some(Self { ids: [be32(slot, UID), be32(slot, GID), project], blocks, is_realtime })
    }

    /// Returns its usage. The inode's count does not separate the sections.
    fn usage(&self, realtime: i64) -> Delta {
        let blocks = i64::try_from(self.blocks).unwrap_or(i64::MAX);
        Delta { blocks: blocks.saturating_sub(realtime), inodes: 1, realtime }
    }
}

/// Returns whether the blocks of a realtime file get another owner, so that they must be counted.
pub(crate) fn moves_realtime(old: Option<&Account>, new: Option<&Account>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return false };
    new.is_realtime && old.ids != new.ids
}

impl<'a> UsageChanges<'a> {
    pub(crate) fn new(quotas: Option<&'a Quotas>) -> Self {
        Self { quotas, changes: SmallVec::new(), realtime: Vec::new(), now: 0, is_entered: false }
    }

    /// Returns the quotas, or `None` if nothing is counted.
    pub(crate) fn quotas(&self) -> Option<&'a Quotas> {
        self.quotas
    }

    /// Notes that an inode maps `delta` more blocks of the realtime section. The inode must be written or freed by the
    /// operation.
    pub(crate) fn note_realtime(&mut self, ino: Ino, delta: i64) {
        if self.quotas.is_none() {
            return;
        }
        match self.realtime.iter_mut().find(|(of, _)| *of == ino) {
            Some((_, sum)) => *sum += delta,
            None => self.realtime.push((ino, delta)),
        }
    }

    /// Replaces an inode's account `old` by a different one. `now` is its change time, in seconds since the epoch. `moved`
    /// is the number of realtime blocks that the inode maps now, if they get another owner ([`moves_realtime`]).
    pub(crate) fn note(
        &mut self,
        ino: Ino,
        (old, new): (Option<Account>, Option<Account>),
        now: i64,
        moved: Option<u64>,
    ) {
        let Some(quotas) = self.quotas.filter(|quotas| !quotas.is_own(ino)) else { return };
        self.now = self.now.max(now);
        let realtime = self.realtime_blocks(ino, old.is_none(), moved);
        self.note_kinds(quotas, &AccountChange { old, new, realtime });
    }

    /// Returns the realtime blocks of an inode before and after the operation.
    fn realtime_blocks(&mut self, ino: Ino, is_new: bool, moved: Option<u64>) -> [i64; 2] {
        let at = self.realtime.iter().position(|(of, _)| *of == ino);
        let delta = at.map_or(0, |at| self.realtime.swap_remove(at).1);
        // A new inode had no blocks, and a freed one has none.
        let now = match moved {
            Some(count) => i64::try_from(count).unwrap_or(i64::MAX),
            None if is_new => delta,
            None => 0,
        };
        [now.saturating_sub(delta), now]
    }

    fn note_kinds(&mut self, quotas: &Quotas, of: &AccountChange) {
        let [before, after] = of.realtime;
        let old = of.old.map(|old| (old.ids, old.usage(before).negated()));
        let new = of.new.map(|new| (new.ids, new.usage(after)));
        for kind in quotas.kinds() {
            match (old, new) {
                (Some((before, old)), Some((after, mut delta))) if before[kind] == after[kind] => {
                    delta.add(old);
                    self.add(UsageChange { kind, id: after[kind], delta, is_limited: true });
                }
                _ => {
                    if let Some((ids, delta)) = old {
                        self.add(UsageChange { kind, id: ids[kind], delta, is_limited: false });
                    }
                    if let Some((ids, delta)) = new {
                        let is_limited = old.is_none();
                        self.add(UsageChange { kind, id: ids[kind], delta, is_limited });
                    }
                }
            }
        }
    }

    fn add(&mut self, change: UsageChange) {
        if change.delta.is_zero() {
            return;
        }
        let is_same = |of: &&mut UsageChange| of.kind == change.kind && of.id == change.id;
        match self.changes.iter_mut().find(is_same) {
            Some(of) => {
                of.delta.add(change.delta);
                of.is_limited |= change.is_limited;
            }
            None => self.changes.push(change),
        }
    }

    /// Returns whether the operation has not changed any usage.
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Enters the changes into the ledger. If `is_limited`, limits are enforced. Returns an identifier whose limits must
    /// be read first, if there is one; then nothing is entered.
    pub(super) fn enter(&mut self, quotas: &Quotas, is_limited: bool) -> Outcome<Option<Id>> {
        match quotas.enter(&self.changes, self.now, is_limited) {
            Ok(()) => {
                self.is_entered = true;
                Ok(None)
            }
            Err(Refusal::UnknownLimits(id)) => Ok(Some(id)),
            // Kernels treat a project like a small file system.
            Err(Refusal::Exceeded(QuotaKind::Project)) => Err(Error::NoSpace.into()),
            Err(Refusal::Exceeded(QuotaKind::User | QuotaKind::Group)) => {
                Err(Error::QuotaExceeded.into())
            }
        }
    }
}

impl InMemoryUndo for UsageChanges<'_> {
    fn keep(&mut self) {
        self.is_entered = false;
        self.changes.clear();
    }
}

impl Drop for UsageChanges<'_> {
    fn drop(&mut self) {
        if let Some(quotas) = self.quotas.filter(|_| self.is_entered) {
            quotas.undo(&self.changes);
        }
    }
}
