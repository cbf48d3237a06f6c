//! Usage of users, groups and projects, if the feature `quota` is set.
//!
//! Usage is kept in memory while the file system is open. An operation notes the changes when it writes inodes
//! ([`UsageChanges`]) and applies them at its commit. Closing a checkpoint writes all changed entries
//! ([`Quota::flush_deferred`]). So the usage on the device always matches the inodes. Limits are stored but not
//! enforced: enforcement is a policy for callers.
//!
//! Invariants:
//! - A separate operation adds an id's entry (`entry`) before the first operation that uses it, so that closing a
//!   checkpoint never allocates. An entry without usage is valid.
//! - All changes of quota files require the `growth` lock, taken after inode locks and before the operation. The
//!   exception is usage in entries, which only the closing of a checkpoint changes.
//! - The quota blocks of a checkpoint fit into the log: when too many have pending changes, the next operation that
//!   commits closes the checkpoint.

mod account;
mod administer;
mod entry;
mod load;
mod recount;
mod statfs;
#[cfg(test)]
mod tests;

use engine::locks::Mutex;
use engine::numbers::{NumberMap, NumberSet};
use engine::{Corruption, Txn};
use smallvec::SmallVec;
use vfs::{Ino, Result};
use zerocopy::IntoBytes;

use account::Changes;
pub(crate) use account::{Account, UsageChanges};

use crate::Ext4Core;
use crate::format::address::Block;
use crate::format::quota::{DiskQuota, QuotaKind};
use crate::kind::BlockKind;

/// Quota blocks may take one in this many of a checkpoint's blocks.
const LOG_SHARE: usize = 32;

/// Position of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DquotLocation {
    block: Block,
    /// Byte offset in the block.
    offset: usize,
}

/// Usage of one id.
#[derive(Clone, Copy, Debug)]
struct Dquot {
    inodes: u64,
    /// Space in bytes.
    space: u64,
    place: DquotLocation,
    /// True if the entry does not contain this usage yet.
    is_dirty: bool,
}

/// Usage of all ids, by kind of quota.
#[derive(Default)]
struct Ledger {
    usage: [NumberMap<u32, Dquot>; 3],
    /// Kind and id of all dirty usage.
    dirty: Vec<(usize, u32)>,
    /// Blocks of all dirty entries.
    dirty_blocks: NumberSet<Block>,
}

/// Quotas of an open file system.
pub(crate) struct Quota {
    /// The quota files; `None` for kinds that are not counted.
    files: [Option<Ino>; 3],
    ledger: Mutex<Ledger>,
    /// Held while an entry is added to a quota file.
    growth: Mutex<()>,
    dirty_blocks_max: usize,
}

impl Ledger {
    fn touch(&mut self, kind: usize, id: u32, change: impl FnOnce(&mut Dquot)) {
        // An id without an entry means that the usage on the device was already wrong, which e2fsck reports.
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
    /// Iterates over the quota files.
    fn files(&self) -> impl Iterator<Item = (usize, QuotaKind, Ino)> {
        let all = QuotaKind::ALL.into_iter().zip(self.files).enumerate();
        all.filter_map(|(number, (kind, ino))| Some((number, kind, ino?)))
    }

    /// Applies the changes of an operation that is about to commit. Returns whether a checkpoint is due.
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

    /// Writes all changed usage to the entries.
    pub(crate) fn flush_deferred(&self, txn: &mut Txn<'_>) -> engine::Result<()> {
        let Ledger { usage, dirty, dirty_blocks } = &mut *self.ledger.lock();
        dirty.sort_unstable();
        for (kind, id) in dirty.drain(..) {
            let Some(usage) = usage[kind].get_mut(&id) else { continue };
            let DquotLocation { block, offset } = usage.place;
            let buffer = txn.buffer(block.0, BlockKind::Quota.plain())?;
            let range = offset..offset + size_of::<DiskQuota>();
            let Some(mut entry) = DiskQuota::at(txn.data(buffer), offset).filter(|e| e.id == id)
            else {
                let damage = Corruption::new("quota file", "an entry changed unexpectedly");
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

    /// Returns the kinds and ids without an entry.
    fn missing(&self, ids: [Option<u32>; 3]) -> SmallVec<[(usize, u32); 3]> {
        let ledger = self.ledger.lock();
        let counted = (0..).zip(ids).filter(|&(kind, _)| self.files[kind].is_some());
        counted
            .filter_map(|(kind, id)| Some((kind, id?)))
            .filter(|&(kind, id)| !ledger.usage[kind].contains_key(&id))
            .collect()
    }
}

impl Ext4Core {
    /// Ensures that the ids of the next operation have entries. The caller may hold the locks of their inodes but must
    /// not have started the operation.
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
        for (number, id) in quota.missing([uid, gid, project]) {
            self.add_entry(quota, number, id)?;
        }
        Ok(())
    }
}
