//! Reports of usage, and changes of limits and grace times.

use vfs::quota::{
    LimitChanges, NewGrace, NewLimits, OwnerKind, OwnerLimits, OwnerUsage, QuotaState,
    ResourceUsage,
};
use vfs::{Corruption, Error, Ino, Result};
use zerocopy::IntoBytes;

use super::load::place_of;
use super::{Dquot, Quota};
use crate::Ext4Core;
use crate::format::features::RoCompat;
use crate::format::quota::{DiskQuota, INFO_BLOCK, INFO_RANGE, LIMIT_UNIT_LOG, QuotaKind};
use crate::kind::BlockKind;
use operations::RunOperations;

impl Ext4Core {
    /// Returns the inode of a quota file, or `None` if usage of this kind is not counted.
    fn quota_file(&self, kind: OwnerKind) -> Option<Ino> {
        let sb = &self.volume.sb;
        let raw = &sb.raw;
        let numbers = [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum];
        let ino = numbers[kind as usize].get();
        (sb.features.ro_compat(RoCompat::QUOTA) && ino != 0).then(|| Ino(ino.into()))
    }

    /// Returns the state of the quotas of a kind of owner. Limits are never enforced here.
    ///
    /// # Errors
    /// `Corrupt` for a damaged quota file; `Device` if it cannot be read.
    pub fn quota_state(&self, kind: OwnerKind) -> Result<QuotaState> {
        let Some(ino) = self.quota_file(kind) else { return Ok(QuotaState::default()) };
        let (_, info) = self.load_quota_file(ino, QuotaKind::ALL[kind as usize])?;
        let grace = [info.block_grace.get().into(), info.inode_grace.get().into(), 0];
        Ok(QuotaState { is_counted: true, is_enforced: false, grace })
    }

    /// Reports all owners of a kind with usage or limits, by their numbers.
    ///
    /// # Errors
    /// `Corrupt` for a damaged quota file; `Device` if it cannot be read.
    pub fn for_each_owner(&self, kind: OwnerKind, each: &mut dyn FnMut(&OwnerUsage)) -> Result<()> {
        let Some(ino) = self.quota_file(kind) else { return Ok(()) };
        let number = kind as usize;
        let mut all: Vec<(u32, Dquot)> = match self.volume.quota.get() {
            Some(quota) => {
                quota.ledger.lock().usage[number].iter().map(|(k, v)| (*k, *v)).collect()
            }
            None => self.read_quota_file(ino, QuotaKind::ALL[number])?.into_iter().collect(),
        };
        all.sort_unstable_by_key(|(id, _)| *id);
        for (id, dquot) in all {
            let owner = self.owner(id, &dquot)?;
            if !owner.is_empty() {
                each(&owner);
            }
        }
        Ok(())
    }

    /// Returns usage and limits of an owner.
    fn owner(&self, id: u32, dquot: &Dquot) -> Result<OwnerUsage> {
        let bytes = self.block(dquot.place.block, BlockKind::Quota.plain())?;
        let entry = DiskQuota::at(&bytes, dquot.place.offset).filter(|entry| entry.id == id);
        Ok(usage_of(&entry.ok_or_else(|| moved(dquot))?, dquot))
    }

    /// Changes limits and grace times. `now` is in seconds since the epoch: the grace time of an owner over a new soft
    /// limit begins then.
    ///
    /// # Errors
    /// `Unsupported` or `Invalid` for kinds that are not counted, the realtime section, and soft limits above hard ones:
    /// then nothing is changed. `NoSpace` if a quota file cannot grow, and `Corrupt` if it is damaged: earlier changes
    /// remain.
    pub fn change_limits(&self, changes: &LimitChanges, now: u64) -> Result<()> {
        self.check_writable()?;
        let kinds = changes.grace.iter().map(|of| of.kind);
        for kind in kinds.chain(changes.limits.iter().map(|of| of.kind)) {
            if self.quota_file(kind).is_none() {
                return Err(not_counted(kind));
            }
        }
        let has_realtime = changes.limits.iter().any(|of| of.realtime != NewLimits::default())
            || changes.grace.iter().any(|of| of.seconds[2].is_some());
        if has_realtime {
            return Err(Error::Invalid("limits of a realtime section, which only XFS has"));
        }
        let Some(quota) = self.volume.quota.get() else { return Ok(()) };
        changes.check(LIMIT_UNIT_LOG, |kind, id| {
            let dquot = quota.ledger.lock().usage[kind as usize].get(&id).copied();
            dquot.map_or_else(|| Ok(OwnerUsage::default()), |dquot| self.owner(id, &dquot))
        })?;
        changes.grace.iter().try_for_each(|of| self.change_grace(quota, of))?;
        changes.limits.iter().try_for_each(|of| self.change_entry(quota, of, now))
    }

    fn change_grace(&self, quota: &Quota, grace: &NewGrace) -> Result<()> {
        let Some(ino) = self.quota_file(grace.kind) else { return Ok(()) };
        let _growth = quota.growth.lock();
        let (file, mut info) = self.load_quota_file(ino, QuotaKind::ALL[grace.kind as usize])?;
        let [blocks, inodes, _] = grace.seconds;
        info.block_grace = blocks.map_or(info.block_grace, Into::into);
        info.inode_grace = inodes.map_or(info.inode_grace, Into::into);
        self.atomically(|op| {
            let place = place_of(&mut *op, &file, INFO_BLOCK)?;
            let buffer = op.buffer(place.block, BlockKind::Quota.plain())?;
            let range = place.offset + INFO_RANGE.start..place.offset + INFO_RANGE.end;
            op.txn.edit(buffer, range).copy_from_slice(info.as_bytes());
            Ok(())
        })
    }

    fn change_entry(&self, quota: &Quota, limits: &OwnerLimits, now: u64) -> Result<()> {
        let (number, id) = (limits.kind as usize, limits.id);
        self.add_entry(quota, number, id)?;
        let state = self.quota_state(limits.kind)?;
        let _growth = quota.growth.lock();
        let Some(dquot) = quota.ledger.lock().usage[number].get(&id).copied() else {
            return Err(Corruption::new("quota file", "an entry was not added").into());
        };
        self.atomically(|op| {
            let buffer = op.buffer(dquot.place.block, BlockKind::Quota.plain())?;
            let at = dquot.place.offset;
            let found = DiskQuota::at(op.txn.data(buffer), at).filter(|entry| entry.id == id);
            let mut entry = found.ok_or_else(|| moved(&dquot))?;
            change(&mut entry, limits, &dquot, (&state, now))?;
            let range = at..at + size_of::<DiskQuota>();
            op.txn.edit(buffer, range).copy_from_slice(entry.stored().as_bytes());
            Ok(())
        })
    }
}

/// Returns the error for an entry that is not where it was read.
fn moved(dquot: &Dquot) -> Error {
    let damage = Corruption::new("quota file", "an entry changed unexpectedly");
    damage.at_block(dquot.place.block.0).into()
}

fn not_counted(kind: OwnerKind) -> Error {
    let what = format!("limits of {}, whose usage is not counted", kind.plural());
    Error::unsupported(what, "enable their quotas first")
}

/// Returns usage and limits of an entry. `dquot` has the current usage.
fn usage_of(entry: &DiskQuota, dquot: &Dquot) -> OwnerUsage {
    let space = ResourceUsage {
        used: dquot.space,
        soft: entry.blocks_soft.get().saturating_mul(1 << LIMIT_UNIT_LOG),
        hard: entry.blocks_hard.get().saturating_mul(1 << LIMIT_UNIT_LOG),
        grace_end: entry.block_time.get(),
    };
    let (soft, hard) = (entry.inodes_soft.get(), entry.inodes_hard.get());
    // A time without a soft limit has no meaning.
    let grace_end = if soft == 0 { 0 } else { entry.inode_time.get() };
    let inodes = ResourceUsage { used: dquot.inodes, soft, hard, grace_end };
    OwnerUsage { id: entry.id.get(), space, inodes, ..OwnerUsage::default() }
}

/// Changes the limits of an entry. As in kernels, the grace time of a changed limit begins again.
fn change(
    entry: &mut DiskQuota,
    limits: &OwnerLimits,
    dquot: &Dquot,
    (state, now): (&QuotaState, u64),
) -> Result<()> {
    let end = |soft: u64, used: u64, grace: u64| match soft {
        0 => 0,
        _ if used <= soft => 0,
        _ => now.saturating_add(grace),
    };
    if limits.space != NewLimits::default() {
        let old = (entry.blocks_soft.get(), entry.blocks_hard.get());
        let (soft, hard) = limits.space.applied(old, LIMIT_UNIT_LOG)?;
        (entry.blocks_soft, entry.blocks_hard) = (soft.into(), hard.into());
        let bytes = soft.saturating_mul(1 << LIMIT_UNIT_LOG);
        entry.block_time = end(bytes, dquot.space, state.grace[0]).into();
    }
    if limits.inodes != NewLimits::default() {
        let old = (entry.inodes_soft.get(), entry.inodes_hard.get());
        let (soft, hard) = limits.inodes.applied(old, 0)?;
        (entry.inodes_soft, entry.inodes_hard) = (soft.into(), hard.into());
        entry.inode_time = end(soft, dquot.inodes, state.grace[1]).into();
    }
    Ok(())
}
