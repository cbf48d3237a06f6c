//! Counting usage from the inodes.

use std::collections::HashMap;

use vfs::{Error, Result};

use super::{Account, Quota};
use crate::Ext4Core;
use crate::alloc::bitmap;
use crate::format::address::Group;
use crate::format::group::GroupFlags;
use crate::inode;
use crate::kind::BlockKind;

/// Inodes and bytes per id, by kind of quota.
type UsageById = [HashMap<u32, (u64, u64)>; 3];

impl Ext4Core {
    /// Starts to count usage.
    pub(crate) fn count_usage(&self, quota: Quota) -> &Quota {
        self.volume.quota.get_or_init(|| quota)
    }

    /// Recounts all usage, in case the quota files are wrong. No other operation may run.
    pub(crate) fn recount_usage(&self, quota: &Quota) -> Result<()> {
        let mut counted = UsageById::default();
        for group in self.volume.geometry.groups() {
            self.count_group(quota, group, &mut counted)?;
        }
        for (number, _, _) in quota.files() {
            quota.correct(number, &counted[number]);
            for &id in counted[number].keys().filter(|&&id| !quota.has(number, id)) {
                self.add_entry(quota, number, id)?;
            }
            quota.correct(number, &counted[number]);
        }
        Ok(())
    }

    fn count_group(&self, quota: &Quota, group: Group, counted: &mut UsageById) -> Result<()> {
        let volume = &self.volume;
        let desc = volume.groups.places(group);
        if desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(());
        }
        let bits =
            self.block(desc.inode_bitmap, BlockKind::InodeBitmap.of_group(group.0))?.to_vec();
        let taken = |&index: &u32| bitmap::all_set(&bits, index..index + 1);
        for index in (0..volume.geometry.inodes_per_group).filter(taken) {
            let ino = volume.geometry.ino_of(group, index);
            let handle = match inode::load_unlinked(self, ino) {
                // Reserved inodes may be in use but empty.
                Err(Error::NotFound) => continue,
                other => other?,
            };
            let Some(account) = Account::of(quota, volume, ino, &handle.inode) else { continue };
            let account = account.with_values(self.count_values(&handle)? as i64);
            for (counted, id) in counted.iter_mut().zip(account.ids) {
                let usage = counted.entry(id).or_default();
                usage.0 = usage.0.saturating_add(account.inodes.unsigned_abs());
                usage.1 = usage.1.saturating_add(account.space.unsigned_abs());
            }
        }
        Ok(())
    }
}

impl Quota {
    /// Sets the usage of all ids with entries to the counted values.
    fn correct(&self, number: usize, counted: &HashMap<u32, (u64, u64)>) {
        let mut ledger = self.ledger.lock();
        let right = |id: &u32| counted.get(id).copied().unwrap_or_default();
        let wrong: Vec<u32> = ledger.usage[number]
            .iter()
            .filter(|(id, usage)| (usage.inodes, usage.space) != right(id))
            .map(|(&id, _)| id)
            .collect();
        for id in wrong {
            ledger.touch(number, id, |usage| (usage.inodes, usage.space) = right(&id));
        }
    }
}
