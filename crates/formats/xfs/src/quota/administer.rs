//! Reports of usage, and changes of limits and grace times.

use operations::RunOperations;
use vfs::quota::{
    LimitChanges, NewLimits, OwnerKind, OwnerLimits, OwnerUsage, QuotaState, ResourceUsage,
};
use vfs::{Corruption, Error, Result};

use super::Quotas;
use super::ledger::{Limits, QuotaFile};
use crate::XfsCore;
use crate::format::bytes::be32;
use crate::format::checksum;
use crate::format::features::Version;
use crate::format::log::dquot::{CRC_OFFSET, DQUOT_BLOCK_SIZE};
use crate::format::quota::{self, GRACE_DEFAULT, QuotaKind, RESOURCES, Resource, is_record};
use crate::kind::BlockKind;

/// Identifier whose record contains default limits and grace times.
const DEFAULTS: u32 = 0;

impl XfsCore {
    /// Returns the state of the quotas of a kind of owner.
    ///
    /// # Errors
    /// `Device` if the quota file cannot be read.
    pub fn quota_state(&self, kind: OwnerKind) -> Result<QuotaState> {
        let sb = &self.volume.sb;
        let of = QuotaKind::ALL[kind as usize];
        let flags = match sb.features.version_bits.contains(Version::QUOTA) {
            true => sb.raw.qflags.get(),
            false => 0,
        };
        let needed = of.accounted() | of.counted();
        Ok(QuotaState {
            is_counted: sb.features.crc() && flags & needed == needed,
            is_enforced: flags & of.enforced() != 0,
            grace: match self.load_quota_file(of)? {
                Some(file) => self.grace_times(of, &file)?,
                None => [GRACE_DEFAULT; RESOURCES],
            },
        })
    }

    /// Returns the grace times of blocks, inodes and realtime blocks, as stored now.
    fn grace_times(&self, kind: QuotaKind, file: &QuotaFile) -> Result<[u64; RESOURCES]> {
        let defaults = self.read_limits(kind, file, DEFAULTS)?.unwrap_or_default();
        Ok(defaults.map(|of| if of.timer == 0 { GRACE_DEFAULT } else { of.timer }))
    }

    /// Reports all owners of a kind with usage or limits, by their numbers. An image of version 4 has no such report.
    ///
    /// # Errors
    /// `Corrupt` for a damaged quota file; `Device` if it cannot be read.
    pub fn for_each_owner(&self, kind: OwnerKind, each: &mut dyn FnMut(&OwnerUsage)) -> Result<()> {
        let kind = QuotaKind::ALL[kind as usize];
        if !self.volume.sb.features.crc() {
            return Ok(());
        }
        let Some(file) = self.load_quota_file(kind)? else { return Ok(()) };
        let runs = file.runs.lock().clone();
        // Damaged extents may overlap.
        let mut budget = self.volume.sb.raw.dblocks.get();
        for (first, run) in runs {
            for nth in 0..run.len {
                let damage = |problem| Corruption::new("quota file", problem).of_inode(file.ino.0);
                let Ok(at) = u32::try_from(first + nth) else {
                    return Err(damage("blocks past all identifiers").into());
                };
                budget =
                    budget.checked_sub(1).ok_or_else(|| damage("more blocks than the image"))?;
                let place = self.volume.geometry.device_block(run.start.plus(nth));
                let bytes = self.block(place, BlockKind::Dquots.of_inode(file.ino, at))?;
                self.report_records(kind, &bytes, each);
            }
        }
        Ok(())
    }

    fn report_records(&self, kind: QuotaKind, bytes: &[u8], each: &mut dyn FnMut(&OwnerUsage)) {
        for record in bytes.chunks_exact(DQUOT_BLOCK_SIZE) {
            let id = be32(record, 4);
            if !is_record(kind, id, record) {
                continue;
            }
            let stored = Resource::ALL.map(|resource| quota::read(record, resource));
            let current = match self.volume.quotas.get() {
                Some(quotas) => quotas.with_pending((kind as usize, id), stored),
                None => stored,
            };
            let owner = self.usage_of(id, &current);
            if !owner.is_empty() {
                each(&owner);
            }
        }
    }

    /// Returns usage and limits of an owner in the units of callers.
    fn usage_of(&self, id: u32, limits: &Limits) -> OwnerUsage {
        let [space, inodes, realtime] = Resource::ALL.map(|resource| {
            let quota = limits[resource as usize];
            let log = if resource == Resource::Inodes { 0 } else { self.volume.sb.raw.blocklog };
            let in_bytes = |blocks: u64| blocks.saturating_mul(1 << log);
            ResourceUsage {
                used: in_bytes(quota.count),
                soft: in_bytes(quota.soft),
                hard: in_bytes(quota.hard),
                grace_end: if id == DEFAULTS { 0 } else { quota.timer },
            }
        });
        OwnerUsage { id, space, inodes, realtime }
    }

    /// Changes limits and grace times. `now` is in seconds since the epoch: the grace time of an owner over a new soft
    /// limit begins then. Operations use default limits and grace times after the next opening.
    ///
    /// # Errors
    /// `Unsupported` or `Invalid` for kinds that are not counted, and soft limits above hard ones: then nothing is
    /// changed. `NoSpace` if a quota file cannot grow, and `Corrupt` if it is damaged: earlier changes remain.
    pub fn change_limits(&self, changes: &LimitChanges, now: u64) -> Result<()> {
        self.check_writable()?;
        let kinds = changes.grace.iter().map(|of| of.kind);
        for kind in kinds.chain(changes.limits.iter().map(|of| of.kind)) {
            let files = self.volume.quotas.get().map(|quotas| &quotas.files);
            if files.is_none_or(|files| files[kind as usize].is_none()) {
                let what = format!("limits of {}, whose usage is not counted", kind.plural());
                return Err(Error::unsupported(what, "enable their quotas first"));
            }
        }
        let Some(quotas) = self.volume.quotas.get() else { return Ok(()) };
        let unit_log = self.volume.sb.raw.blocklog.into();
        changes.check(unit_log, |kind, id| {
            let Some(file) = &quotas.files[kind as usize] else { return Ok(OwnerUsage::default()) };
            let stored = self.read_limits(QuotaKind::ALL[kind as usize], file, id)?;
            Ok(self.usage_of(id, &stored.unwrap_or_default()))
        })?;
        for grace in &changes.grace {
            self.change_record(quotas, (grace.kind, DEFAULTS), |of, resource, _| {
                let new = grace.seconds[resource as usize];
                of.timer = new.map_or(of.timer, u64::from);
                Ok(())
            })?;
        }
        for limits in &changes.limits {
            self.change_record(quotas, (limits.kind, limits.id), |of, resource, grace| {
                let log = if resource == Resource::Inodes { 0 } else { unit_log };
                (of.soft, of.hard) =
                    of_resource(limits, resource).applied((of.soft, of.hard), log)?;
                if limits.id != DEFAULTS {
                    of.timer = match (of.is_over(), of.timer) {
                        (false, _) => 0,
                        (true, 0) => now.saturating_add(grace).max(1),
                        (true, timer) => timer,
                    };
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Changes the record of an owner. `change` gets each resource, and its grace time.
    fn change_record(
        &self,
        quotas: &Quotas,
        (kind, id): (OwnerKind, u32),
        mut change: impl FnMut(&mut quota::Quota, Resource, u64) -> Result<()>,
    ) -> Result<()> {
        let of = QuotaKind::ALL[kind as usize];
        let Some(file) = &quotas.files[kind as usize] else { return Ok(()) };
        let owner = |wanted| (kind == wanted).then_some(id);
        let [user, group, project] = OwnerKind::ALL.map(owner);
        self.provide_quota(user, group, project)?;
        // Pending usage gets into the record, which decides whether a grace time begins.
        self.engine.checkpoint()?;
        let grace = self.grace_times(of, file)?;
        let at = id / quotas.records_per_block;
        let damage = |problem| Corruption::new("quota file", problem).of_inode(file.ino.0);
        let place = file.block(at).ok_or_else(|| damage("an owner without a record"))?;
        let place = self.volume.geometry.device_block(place);
        let start = (id % quotas.records_per_block) as usize * DQUOT_BLOCK_SIZE;
        let range = start..start + DQUOT_BLOCK_SIZE;
        self.atomically(|op| {
            let buffer = op.buffer(place, BlockKind::Dquots.of_inode(file.ino, at))?;
            let mut record = op.txn.data(buffer)[range.clone()].to_vec();
            if !is_record(of, id, &record) {
                return Err(damage("a record of another owner").at_block(place.0).into());
            }
            for resource in Resource::ALL {
                let mut quota = quota::read(&record, resource);
                change(&mut quota, resource, grace[resource as usize])?;
                quota::write(&mut record, resource, &quota);
            }
            checksum::seal(&mut record, CRC_OFFSET);
            op.txn.edit(buffer, range.clone()).copy_from_slice(&record);
            Ok(())
        })?;
        quotas.forget((kind as usize, id));
        Ok(())
    }
}

/// Returns the new limits of a resource.
const fn of_resource(limits: &OwnerLimits, resource: Resource) -> NewLimits {
    match resource {
        Resource::Blocks => limits.space,
        Resource::Inodes => limits.inodes,
        Resource::RealtimeBlocks => limits.realtime,
    }
}
