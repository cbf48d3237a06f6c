//! Accounts of inodes, and the changes of usage by an operation.

use operations::{InMemoryUndo, Outcome};
use vfs::{Error, Ino};

use super::Quotas;
use super::change::{Delta, UsageChange};
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
    blocks: u64,
    is_realtime: bool,
}

/// The changes of usage by an operation.
pub(crate) struct UsageChanges<'a> {
    /// The quotas; `None` if nothing is counted.
    quotas: Option<&'a Quotas>,
    /// Not within the operation, which is moved: nearly all file systems have no quotas, and nothing is allocated.
    changes: Vec<UsageChange>,
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
}

impl<'a> UsageChanges<'a> {
    pub(crate) fn new(quotas: Option<&'a Quotas>) -> Self {
        Self { quotas, changes: Vec::new(), now: 0, is_entered: false }
    }

    /// Returns the quotas, or `None` if nothing is counted.
    pub(crate) fn quotas(&self) -> Option<&'a Quotas> {
        self.quotas
    }

    /// Replaces an inode's account `old` by `new`. `now` is its change time, in seconds since the epoch.
    pub(crate) fn note(&mut self, ino: Ino, old: Option<Account>, new: Option<Account>, now: i64) {
        let Some(quotas) = self.quotas.filter(|quotas| old != new && !quotas.is_own(ino)) else {
            return;
        };
        let is_realtime = |account: Option<Account>| account.is_some_and(|of| of.is_realtime);
        if is_realtime(old) || is_realtime(new) {
            // The inode does not say how many of its blocks are on the realtime device.
            quotas.give_up();
            return;
        }
        self.now = self.now.max(now);
        let blocks = |of: Account| i64::try_from(of.blocks).unwrap_or(i64::MAX);
        for kind in quotas.kinds() {
            match (old, new) {
                (Some(old), Some(new)) if old.ids[kind] == new.ids[kind] => {
                    let delta = Delta { blocks: blocks(new) - blocks(old), inodes: 0 };
                    self.add(UsageChange { kind, id: new.ids[kind], delta, is_limited: true });
                }
                _ => {
                    if let Some(old) = old {
                        let delta = Delta { blocks: -blocks(old), inodes: -1 };
                        self.add(UsageChange { kind, id: old.ids[kind], delta, is_limited: false });
                    }
                    if let Some(new) = new {
                        let delta = Delta { blocks: blocks(new), inodes: 1 };
                        let is_limited = old.is_none();
                        self.add(UsageChange { kind, id: new.ids[kind], delta, is_limited });
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

    /// Returns the changes so far.
    pub(super) fn changes(&self) -> &[UsageChange] {
        &self.changes
    }

    /// Enters the changes into the ledger. If `is_limited`, fails instead if one exceeds a limit.
    pub(super) fn enter(&mut self, is_limited: bool) -> Outcome<()> {
        let Some(quotas) = self.quotas else { return Ok(()) };
        match quotas.enter(&self.changes, self.now, is_limited) {
            Ok(()) => {
                self.is_entered = true;
                Ok(())
            }
            // Kernels treat a project like a small file system.
            Err(QuotaKind::Project) => Err(Error::NoSpace.into()),
            Err(QuotaKind::User | QuotaKind::Group) => Err(Error::QuotaExceeded.into()),
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
            for change in &mut self.changes {
                change.delta = change.delta.negated();
            }
            quotas.undo(&self.changes);
        }
    }
}
