//! Totals of directories whose project has limits: the project is like a small file system.

use vfs::{Error, Ino, Result, StatFs};

use super::Dquot;
use super::load::place_of;
use crate::Ext4Core;
use crate::format::features::RoCompat;
use crate::format::quota::{
    BLOCK_SIZE, DiskQuota, ENTRIES_PER_BLOCK, LIMIT_UNIT_LOG, QuotaKind, ROOT_BLOCK, TREE_DEPTH,
    entry_at, reference_range,
};
use crate::kind::BlockKind;

const PROJECT: usize = QuotaKind::Project as usize;

/// Returns the lower one of two limits, where 0 means none.
fn lower(soft: u64, hard: u64) -> Option<u64> {
    [soft, hard].into_iter().filter(|limit| *limit != 0).min()
}

impl Ext4Core {
    /// Returns whether there is a quota file of projects.
    pub(crate) fn has_project_quota(&self) -> bool {
        let sb = &self.volume.sb;
        sb.features.ro_compat(RoCompat::QUOTA) && sb.raw.prj_quota_inum.get() != 0
    }

    /// Returns totals within the limits of a project.
    ///
    /// # Errors
    /// Read errors.
    pub(crate) fn within_project(&self, totals: StatFs, project: u32) -> Result<StatFs> {
        let entry = match self.entry_of_project(project) {
            Ok(Some(entry)) => entry,
            // A damaged quota file does not prevent reading.
            Ok(None) | Err(Error::Corrupt(_)) => return Ok(totals),
            Err(error) => return Err(error),
        };
        let block_log = totals.block_size.trailing_zeros();
        let mut totals = totals;
        let of_space = lower(entry.blocks_soft.get(), entry.blocks_hard.get());
        let in_blocks = |limit: u64| limit.saturating_mul(1 << LIMIT_UNIT_LOG) >> block_log;
        let limit = of_space.map(in_blocks).filter(|limit| *limit != 0);
        if let Some(limit) = limit.filter(|limit| *limit < totals.blocks) {
            let free = limit.saturating_sub(entry.space.get() >> block_log);
            totals.blocks = limit;
            totals.blocks_free = free;
            totals.blocks_available = free;
            totals.blocks_for_contents = free;
        }
        let limit = lower(entry.inodes_soft.get(), entry.inodes_hard.get());
        if let Some(limit) = limit.filter(|limit| *limit < totals.inodes) {
            totals.inodes = limit;
            totals.inodes_free = limit.saturating_sub(entry.inodes.get());
        }
        Ok(totals)
    }

    /// Returns the limits and the current usage of a project.
    fn entry_of_project(&self, project: u32) -> Result<Option<DiskQuota>> {
        let Some(quota) = self.volume.quota.get() else { return self.stored_entry(project) };
        let usage = quota.ledger.lock().usage[PROJECT].get(&project).copied();
        let Some(Dquot { inodes, space, place, .. }) = usage else { return Ok(None) };
        let bytes = self.block(place.block, BlockKind::Quota.plain())?;
        let entry = DiskQuota::at(&bytes, place.offset).filter(|entry| entry.id == project);
        Ok(entry.map(|mut entry| {
            (entry.inodes, entry.space) = (inodes.into(), space.into());
            entry
        }))
    }

    /// Returns the entry of a project in the quota file of an image that is open for reading.
    fn stored_entry(&self, project: u32) -> Result<Option<DiskQuota>> {
        let ino = Ino(self.volume.sb.raw.prj_quota_inum.get().into());
        let (file, info) = self.load_quota_file(ino, QuotaKind::Project)?;
        let mut at = ROOT_BLOCK;
        for level in 0..=TREE_DEPTH {
            let place = place_of(&mut &*self, &file, at)?;
            let bytes = self.block(place.block, BlockKind::Quota.plain())?;
            let block = &bytes[place.offset..place.offset + BLOCK_SIZE];
            if level == TREE_DEPTH {
                let entries = (0..ENTRIES_PER_BLOCK).filter_map(|index| entry_at(block, index));
                return Ok(entries
                    .into_iter()
                    .find(|entry| entry.id == project && !entry.is_none()));
            }
            let range = reference_range(level, project);
            at = u32::from_le_bytes(block[range].try_into().unwrap_or_default());
            if at == 0 {
                return Ok(None);
            }
            if at <= ROOT_BLOCK || at >= info.blocks.get() {
                return Err(file.corrupt("quota file", "a pointer of its tree is outside the file"));
            }
        }
        Ok(None)
    }
}
