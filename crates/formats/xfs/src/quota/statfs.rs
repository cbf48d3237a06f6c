//! Totals of directories whose project has limits: the project is like a small file system.

use vfs::{Result, StatFs};

use super::ledger::Limits;
use crate::XfsCore;
use crate::format::features::Version;
use crate::format::quota::{QuotaKind, Resource};

const KIND: QuotaKind = QuotaKind::Project;

impl XfsCore {
    /// Returns whether limits of projects are enforced, and their usage was counted.
    pub(crate) fn limits_projects(&self) -> bool {
        let sb = &self.volume.sb;
        let needed = KIND.accounted() | KIND.enforced() | KIND.counted();
        sb.features.crc()
            && sb.features.version_bits.contains(Version::QUOTA)
            && sb.raw.qflags.get() & needed == needed
    }

    /// Returns totals within the limits of a project. The blocks of `totals` are those of the realtime section if
    /// `is_realtime`.
    ///
    /// # Errors
    /// Read errors.
    pub(crate) fn within_project(
        &self,
        totals: StatFs,
        project: u32,
        is_realtime: bool,
    ) -> Result<StatFs> {
        let Some(limits) = self.limits_of_project(project)? else { return Ok(totals) };
        let resource = if is_realtime { Resource::RealtimeBlocks } else { Resource::Blocks };
        let room = |resource: Resource| {
            let quota = &limits[resource as usize];
            let limit = if quota.soft != 0 { quota.soft } else { quota.hard };
            (limit != 0).then(|| (limit, limit.saturating_sub(quota.count)))
        };
        let mut totals = totals;
        if let Some((limit, free)) = room(resource) {
            totals.blocks = totals.blocks.min(limit);
            totals.blocks_free = totals.blocks_free.min(free);
            totals.blocks_available = totals.blocks_available.min(free);
            totals.blocks_for_contents = totals.blocks_for_contents.min(free);
        }
        if let Some((limit, free)) = room(Resource::Inodes) {
            totals.inodes = totals.inodes.min(limit);
            totals.inodes_free = totals.inodes_free.min(free);
        }
        Ok(totals)
    }

    /// Returns limits and current usage of a project. `None` for project 0, whose record contains default limits, and if
    /// the quota file is damaged.
    fn limits_of_project(&self, project: u32) -> Result<Option<Limits>> {
        if project == 0 {
            return Ok(None);
        }
        let Some(quotas) = self.volume.quotas.get() else {
            // The image is open for reading.
            let Some(file) = self.load_quota_file(KIND)? else { return Ok(None) };
            let limits = self.read_limits(KIND, &file, project)?.unwrap_or_default();
            return Ok(Some(file.with_defaults(limits)));
        };
        let Some(file) = &quotas.files[KIND as usize] else { return Ok(None) };
        let limits = self.read_limits(KIND, file, project)?.unwrap_or_default();
        Ok(Some(quotas.with_pending((KIND as usize, project), file.with_defaults(limits))))
    }
}
