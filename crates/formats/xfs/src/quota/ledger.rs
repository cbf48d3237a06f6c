//! The quotas of an open file system, and the ledger of changes that are not in the quota files yet.

use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use engine::locks::Mutex;
use engine::numbers::{NumberMap, NumberSet};
use vfs::Ino;

use super::change::{Delta, UsageChange};
use crate::format::address::FsBlock;
use crate::format::quota::{GRACE_DEFAULT, Quota, QuotaKind, RESOURCES, Resource, per_block};

/// Maximum number of identifiers that are remembered beyond a checkpoint.
const OWNERS_MAX: usize = 1 << 16;

/// Limits, current usage and running grace times of an identifier, by resource.
pub(super) type Limits = [Quota; RESOURCES];

/// An identifier of a kind of quota.
pub(super) type Id = (usize, u32);

/// Contiguous blocks of a quota file.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordRun {
    pub(super) start: FsBlock,
    pub(super) len: u64,
}

/// A quota file whose usage is kept up to date.
#[derive(Debug)]
pub(super) struct QuotaFile {
    pub(super) ino: Ino,
    /// Its blocks, by the first logical block.
    pub(super) runs: Mutex<BTreeMap<u64, RecordRun>>,
    /// Limits in the record of identifier 0: those of identifiers without own limits. The timers are grace times.
    pub(super) defaults: Limits,
    /// True if limits are enforced.
    pub(super) is_enforced: bool,
    /// One more than the number of a block that was found, or 0. Blocks of an open quota file are never removed.
    found: AtomicU64,
}

/// An identifier in use since the file system was opened.
#[derive(Clone, Copy, Debug, Default)]
struct Owner {
    /// Changes of usage since the last checkpoint.
    delta: Delta,
    /// True if it is listed in [`Ledger::changed`].
    is_changed: bool,
    limits: KnownLimits,
}

#[derive(Clone, Copy, Debug, Default)]
enum KnownLimits {
    #[default]
    Unknown,
    None,
    Some(Limits),
}

/// Changes of usage since the last checkpoint.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    owners: NumberMap<Id, Owner>,
    /// Identifiers whose usage changed.
    changed: Vec<Id>,
    /// Kind and logical block of the records to change.
    blocks: NumberSet<(usize, u32)>,
    /// Largest change time of the changed inodes, in seconds since the epoch.
    pub(super) now: u64,
    /// Kinds that are not kept up to date any more.
    pub(super) given_up: [bool; 3],
    /// Given-up kinds whose flag in the superblock was cleared.
    pub(super) is_flag_cleared: [bool; 3],
}

/// The reason why changes are not entered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal {
    /// The limits of an identifier must be read first.
    UnknownLimits(Id),
    /// A change exceeds a limit.
    Exceeded(QuotaKind),
}

/// The quotas of an open file system.
#[derive(Debug)]
pub(crate) struct Quotas {
    pub(super) files: [Option<QuotaFile>; 3],
    pub(super) ledger: Mutex<Ledger>,
    /// Held while a block is added to a quota file.
    pub(super) growth: Mutex<()>,
    pub(super) records_per_block: u32,
    /// Number of blocks of records that the ledger changes.
    pending: AtomicUsize,
}

impl Ledger {
    /// Takes all changes of usage, sorted by identifier.
    pub(super) fn take_changes(&mut self) -> Vec<(Id, Delta)> {
        let mut changes = Vec::with_capacity(self.changed.len());
        for id in self.changed.drain(..) {
            let Some(owner) = self.owners.get_mut(&id) else { continue };
            owner.is_changed = false;
            let delta = mem::take(&mut owner.delta);
            if !delta.is_zero() {
                changes.push((id, delta));
            }
        }
        if self.owners.len() > OWNERS_MAX {
            self.owners.clear();
        }
        self.blocks.clear();
        changes.sort_unstable_by_key(|(id, _)| *id);
        changes
    }

    /// Returns changed limits of an identifier, if they are known.
    fn limits_mut(&mut self, id: Id) -> Option<&mut Limits> {
        match &mut self.owners.get_mut(&id)?.limits {
            KnownLimits::Some(limits) => Some(limits),
            KnownLimits::None | KnownLimits::Unknown => None,
        }
    }

    /// Returns the changes of an identifier's usage since the last checkpoint.
    fn delta(&self, id: Id) -> Delta {
        self.owners.get(&id).map_or_else(Delta::default, |owner| owner.delta)
    }
}

impl QuotaFile {
    /// Creates the file with its blocks, without default limits.
    pub(super) fn new(ino: Ino, runs: BTreeMap<u64, RecordRun>, is_enforced: bool) -> Self {
        let (runs, defaults) = (Mutex::new(runs), Limits::default());
        Self { ino, runs, defaults, is_enforced, found: AtomicU64::new(0) }
    }

    /// Returns whether the file has the block with number `at`.
    pub(super) fn has_block(&self, at: u32) -> bool {
        let mark = u64::from(at) + 1;
        if self.found.load(Ordering::Relaxed) == mark {
            return true;
        }
        let has = self.block(at).is_some();
        if has {
            self.found.store(mark, Ordering::Relaxed);
        }
        has
    }

    /// Returns the block with number `at` in the file.
    pub(super) fn block(&self, at: u32) -> Option<FsBlock> {
        let at = u64::from(at);
        let runs = self.runs.lock();
        let (first, run) = runs.range(..=at).next_back()?;
        (at - first < run.len).then(|| run.start.plus(at - first))
    }

    /// Returns the grace time of a resource in seconds.
    pub(super) const fn grace(&self, resource: Resource) -> u64 {
        match self.defaults[resource as usize].timer {
            0 => GRACE_DEFAULT,
            time => time,
        }
    }

    /// Returns limits, with the default ones where an identifier has none.
    pub(super) fn with_defaults(&self, mut limits: Limits) -> Limits {
        for (own, defaults) in limits.iter_mut().zip(&self.defaults) {
            own.soft = if own.soft == 0 { defaults.soft } else { own.soft };
            own.hard = if own.hard == 0 { defaults.hard } else { own.hard };
        }
        limits
    }

    /// Gives a record the default limits where it has none, and starts or stops its grace time.
    pub(super) fn adjust(&self, id: u32, resource: Resource, quota: &mut Quota, now: u64) {
        if id == 0 {
            return;
        }
        let defaults = &self.defaults[resource as usize];
        quota.soft = if quota.soft == 0 { defaults.soft } else { quota.soft };
        quota.hard = if quota.hard == 0 { defaults.hard } else { quota.hard };
        if !quota.is_over() {
            quota.timer = 0;
        } else if quota.timer == 0 {
            quota.timer = now.saturating_add(self.grace(resource)).max(1);
        }
    }
}

impl Quotas {
    pub(super) fn new(files: [Option<QuotaFile>; 3], block_size: usize) -> Self {
        Self {
            files,
            ledger: Mutex::default(),
            growth: Mutex::default(),
            records_per_block: per_block(block_size),
            pending: AtomicUsize::new(0),
        }
    }

    /// Returns whether an inode is a quota file.
    pub(super) fn is_own(&self, ino: Ino) -> bool {
        self.files.iter().flatten().any(|file| file.ino == ino)
    }

    /// Iterates over the kinds that are counted.
    pub(super) fn kinds(&self) -> impl Iterator<Item = usize> {
        (0..self.files.len()).filter(|&kind| self.files[kind].is_some())
    }

    /// Returns whether limits of any kind are enforced.
    pub(crate) fn is_enforced(&self) -> bool {
        self.files.iter().flatten().any(|file| file.is_enforced)
    }

    /// Returns the number of blocks that [`Quotas::flush_deferred`] will change.
    pub(crate) fn deferred_blocks(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Sets the number of blocks of records that the ledger changes.
    pub(super) fn set_pending(&self, blocks: usize) {
        self.pending.store(blocks, Ordering::Relaxed);
    }

    /// Enters the changes of an operation. If `is_limited`, limits are enforced. After an error nothing is entered.
    pub(super) fn enter(
        &self,
        changes: &[UsageChange],
        now: i64,
        is_limited: bool,
    ) -> Result<(), Refusal> {
        let mut ledger = self.ledger.lock();
        let now = u64::try_from(now).unwrap_or(0);
        ledger.now = ledger.now.max(now);
        for (nth, change) in changes.iter().enumerate() {
            let limited_at = (is_limited && change.is_limited).then_some(now);
            if let Err(refusal) = self.add(&mut ledger, change, limited_at) {
                for entered in &changes[..nth] {
                    self.remove(&mut ledger, entered);
                }
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// Removes changes that were entered.
    pub(super) fn undo(&self, changes: &[UsageChange]) {
        let mut ledger = self.ledger.lock();
        for change in changes {
            self.remove(&mut ledger, change);
        }
    }

    fn remove(&self, ledger: &mut Ledger, change: &UsageChange) {
        let negated = UsageChange { delta: change.delta.negated(), ..*change };
        // Without limits, `add` refuses no change.
        let _ = self.add(ledger, &negated, None);
    }

    /// Adds a change to the usage of its identifier. With the time of the operation, limits are enforced.
    fn add(
        &self,
        ledger: &mut Ledger,
        change: &UsageChange,
        limited_at: Option<u64>,
    ) -> Result<(), Refusal> {
        let id = (change.kind, change.id);
        let Some(file) = self.files[change.kind].as_ref().filter(|_| !ledger.given_up[id.0]) else {
            return Ok(());
        };
        let owner = ledger.owners.entry(id).or_default();
        if let Some(now) = limited_at.filter(|_| file.is_enforced && change.id != 0) {
            match &owner.limits {
                KnownLimits::Unknown => return Err(Refusal::UnknownLimits(id)),
                KnownLimits::Some(limits) if exceeds(limits, change.delta, now) => {
                    return Err(Refusal::Exceeded(QuotaKind::ALL[change.kind]));
                }
                KnownLimits::Some(_) | KnownLimits::None => {}
            }
        }
        owner.delta.add(change.delta);
        if !mem::replace(&mut owner.is_changed, true) {
            ledger.changed.push(id);
            if ledger.blocks.insert((change.kind, change.id / self.records_per_block)) {
                self.set_pending(ledger.blocks.len());
            }
        }
        if let KnownLimits::Some(limits) = &mut owner.limits {
            for (resource, delta) in change.delta.by_resource() {
                let quota = &mut limits[resource as usize];
                quota.count = quota.count.saturating_add_signed(delta);
                file.adjust(change.id, resource, quota, ledger.now);
            }
        }
        Ok(())
    }

    /// Remembers the limits of an identifier, with the usage in its record. No checkpoint may be closed since that was
    /// read.
    pub(super) fn remember(&self, id: Id, limits: Limits) {
        let mut ledger = self.ledger.lock();
        let owner = ledger.owners.entry(id).or_default();
        if matches!(owner.limits, KnownLimits::Unknown) {
            let has_limits = limits.iter().any(|of| of.hard != 0 || of.soft != 0);
            owner.limits = if has_limits {
                KnownLimits::Some(plus(limits, owner.delta))
            } else {
                KnownLimits::None
            };
        }
    }

    /// Forgets the limits of an identifier, which were changed.
    pub(super) fn forget(&self, id: Id) {
        if let Some(owner) = self.ledger.lock().owners.get_mut(&id) {
            owner.limits = KnownLimits::Unknown;
        }
    }

    /// Returns limits whose usage is that in a record, with the current usage.
    pub(super) fn with_pending(&self, id: Id, limits: Limits) -> Limits {
        let mut ledger = self.ledger.lock();
        match ledger.limits_mut(id) {
            Some(known) => *known,
            None => plus(limits, ledger.delta(id)),
        }
    }
}

/// Returns limits with changed usage.
fn plus(mut limits: Limits, delta: Delta) -> Limits {
    for (resource, delta) in delta.by_resource() {
        let quota = &mut limits[resource as usize];
        quota.count = quota.count.saturating_add_signed(delta);
    }
    limits
}

/// Returns whether a change exceeds a limit at a time in seconds since the epoch.
fn exceeds(limits: &Limits, delta: Delta, now: u64) -> bool {
    delta.by_resource().into_iter().filter(|(_, delta)| *delta > 0).any(|(resource, delta)| {
        let quota = &limits[resource as usize];
        let new = quota.count.saturating_add_signed(delta);
        let is_expired = quota.timer != 0 && now > quota.timer;
        quota.hard != 0 && new > quota.hard || quota.soft != 0 && new > quota.soft && is_expired
    })
}
