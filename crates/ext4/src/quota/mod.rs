//! What owners, groups and projects use, where the feature `quota` has that counted.
//!
//! Usage is known in memory from the opening on. An operation notes what it changes when it writes
//! inodes ([`UsageChanges`]), and what it noted is applied as it commits; when a checkpoint is closed, all
//! entries that changed go into it ([`Quota::flush_deferred`]). So usage on the device is always that of the
//! inodes beside it. Limits are kept but not enforced: that is a policy, and whoever calls this has
//! the right to change an image.
//!
//! Invariants:
//! - An id gets its entry in the quota file (`entry`) in an operation of its own, before the one that
//!   first uses it, so that closing a checkpoint never allocates. An entry without usage is sound.
//! - Only who holds the lock of growth, taken after inode locks and before the operation, changes
//!   anything in quota files but usage in entries, which only the closing of checkpoints does.
//! - A checkpoint changes no more blocks of quota files than the log has room for: when so many have
//!   changes that wait, the next operation that commits has the checkpoint closed.

mod account;
mod entry;
mod load;
mod recount;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use smallvec::SmallVec;
use transaction::locks::Mutex;
use transaction::{Corruption, Txn};
use vfs::{Ino, Result};
use zerocopy::IntoBytes;

use account::Changes;
pub(crate) use account::{Account, UsageChanges};

use crate::Ext4;
use crate::format::address::Block;
use crate::format::quota::{Entry, QuotaKind};
use crate::kind::Kind;

/// One in so many blocks that a checkpoint may have can be a quota file's.
const LOG_SHARE: usize = 32;

/// Where an entry lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    block: Block,
    /// Its first byte in the block.
    offset: usize,
}

/// What one id uses.
#[derive(Clone, Copy, Debug)]
struct Usage {
    inodes: u64,
    /// In bytes.
    space: u64,
    place: Place,
    /// Whether the entry does not say so yet.
    is_dirty: bool,
}

/// Usage of all ids, by kind of quota.
#[derive(Default)]
struct Ledger {
    usage: [HashMap<u32, Usage>; 3],
    /// Kind and id of what is dirty.
    dirty: Vec<(usize, u32)>,
    /// Where that lies.
    dirty_blocks: HashSet<Block>,
}

/// The quotas of an open file system.
pub(crate) struct Quota {
    /// The quota files; `None` for what is not counted.
    files: [Option<Ino>; 3],
    ledger: Mutex<Ledger>,
    /// Held while a quota file gets an entry.
    growth: Mutex<()>,
    dirty_blocks_max: usize,
}

impl Ledger {
    fn touch(&mut self, kind: usize, id: u32, change: impl FnOnce(&mut Usage)) {
        // Without an entry, what lies on the device was not right before: e2fsck says so.
        let Some(usage) = self.usage[kind].get_mut(&id) else { return };
        change(usage);
        if !usage.is_dirty {
            usage.is_dirty = true;
            self.dirty.push((kind, id));
            self.dirty_blocks.insert(usage.place.block);
        }
    }
}

impl Quota {
    /// The quota files.
    fn files(&self) -> impl Iterator<Item = (usize, QuotaKind, Ino)> {
        let all = QuotaKind::ALL.into_iter().zip(self.files).enumerate();
        all.filter_map(|(number, (kind, ino))| Some((number, kind, ino?)))
    }

    /// Applies what an operation noted, which is about to commit. Whether a checkpoint is due.
    #[must_use]
    pub(crate) fn apply(&self, changes: &Changes) -> bool {
        let mut ledger = self.ledger.lock();
        for change in changes.iter() {
            ledger.touch(change.kind, change.id, |usage| {
                usage.inodes = usage.inodes.saturating_add_signed(change.inodes);
                usage.space = usage.space.saturating_add_signed(change.space);
            });
        }
        ledger.dirty_blocks.len() > self.dirty_blocks_max
    }

    /// Brings all usage that changed into the entries.
    pub(crate) fn flush_deferred(&self, txn: &mut Txn<'_>) -> transaction::Result<()> {
        let Ledger { usage, dirty, dirty_blocks } = &mut *self.ledger.lock();
        dirty.sort_unstable();
        for (kind, id) in dirty.drain(..) {
            let Some(usage) = usage[kind].get_mut(&id) else { continue };
            let Place { block, offset } = usage.place;
            let buffer = txn.buffer(block.0, Kind::Quota.plain())?;
            let range = offset..offset + size_of::<Entry>();
            let Some(mut entry) = Entry::at(txn.data(buffer), offset).filter(|e| e.id == id) else {
                let damage = Corruption::new("quota file", "an entry that is not what was there");
                return Err(damage.at_block(block.0).into());
            };
            entry.inodes = usage.inodes.into();
            entry.space = usage.space.into();
            txn.edit(buffer, range).copy_from_slice(entry.stored().as_bytes());
            usage.is_dirty = false;
        }
        dirty_blocks.clear();
        Ok(())
    }

    fn has(&self, kind: usize, id: u32) -> bool {
        self.ledger.lock().usage[kind].contains_key(&id)
    }
}

impl Ext4 {
    /// Sees to it that the ids that an operation is about to use have entries. Their inodes' locks
    /// may be held, but no operation may have begun.
    ///
    /// # Errors
    /// `NoSpace` if a quota file cannot grow, `Corrupt` if it is damaged.
    pub(crate) fn provide_quota(
        &self,
        uid: Option<u32>,
        gid: Option<u32>,
        project: Option<u32>,
    ) -> Result<()> {
        let Some(quota) = self.volume.quota.get() else { return Ok(()) };
        let ids = [uid, gid, project];
        let missing: SmallVec<[_; 3]> = quota
            .files()
            .filter_map(|(number, ..)| Some((number, ids[number]?)))
            .filter(|&(number, id)| !quota.has(number, id))
            .collect();
        for (number, id) in missing {
            self.add_entry(quota, number, id)?;
        }
        Ok(())
    }
}
