//! Adding the ledger to the records of the quota files when a checkpoint is closed.

use engine::{Corruption, Error, Txn};

use super::Quotas;
use super::change::Delta;
use super::ledger::{Id, Ledger};
use crate::alloc::headers;
use crate::format::checksum;
use crate::format::geometry::Geometry;
use crate::format::log::dquot::{CRC_OFFSET, DQUOT_BLOCK_SIZE};
use crate::format::quota::{self, QuotaKind, is_record};
use crate::kind::BlockKind;

/// Maximum number of blocks held at a time.
const BLOCKS_AT_ONCE: usize = 16;

impl Quotas {
    /// Adds all changes of usage to the quota files. Clears the flags of kinds that are given up.
    pub(crate) fn flush_deferred(
        &self,
        geometry: &Geometry,
        txn: &mut Txn<'_>,
    ) -> engine::Result<()> {
        let mut ledger = self.ledger.lock();
        let changes = ledger.take_changes();
        self.set_pending(0);
        let block_of = |&((kind, id), _): &(Id, Delta)| (kind, id / self.records_per_block);
        for (nth, changes) in changes.chunk_by(|a, b| block_of(a) == block_of(b)).enumerate() {
            let (kind, at) = block_of(&changes[0]);
            if !ledger.given_up[kind] {
                match self.change_block(geometry, txn, (kind, at), changes, ledger.now) {
                    Ok(()) => {}
                    Err(Error::Corrupt(_)) => ledger.given_up[kind] = true,
                    Err(error) => return Err(error),
                }
            }
            if nth % BLOCKS_AT_ONCE == BLOCKS_AT_ONCE - 1 {
                txn.join_part();
            }
        }
        clear_flags(geometry, txn, &mut ledger)
    }

    /// Adds changes to the records in one block. `Corrupt` if a record is missing, invalid, or would be negative.
    fn change_block(
        &self,
        geometry: &Geometry,
        txn: &mut Txn<'_>,
        (kind, at): (usize, u32),
        changes: &[(Id, Delta)],
        now: u64,
    ) -> engine::Result<()> {
        let fault = |problem| Corruption::new("quota file", problem);
        let Some(file) = &self.files[kind] else { return Ok(()) };
        let place = file.block(at).ok_or_else(|| fault("an owner without a record"))?;
        let tag = BlockKind::Dquots.of_inode(file.ino, at);
        let buffer = txn.buffer(geometry.device_block(place).0, tag)?;
        for &((_, id), delta) in changes {
            let start = (id % self.records_per_block) as usize * DQUOT_BLOCK_SIZE;
            let range = start..start + DQUOT_BLOCK_SIZE;
            let mut record = [0; DQUOT_BLOCK_SIZE];
            record.copy_from_slice(&txn.data(buffer)[range.clone()]);
            if !is_record(QuotaKind::ALL[kind], id, &record) {
                return Err(fault("a record of another owner").into());
            }
            for (resource, delta) in delta.by_resource() {
                let mut quota = quota::read(&record, resource);
                let count = quota.count.checked_add_signed(delta);
                quota.count = count.ok_or_else(|| fault("usage below 0"))?;
                file.adjust(id, resource, &mut quota, now);
                quota::write(&mut record, resource, &quota);
            }
            checksum::seal(&mut record, CRC_OFFSET);
            txn.edit(buffer, range).copy_from_slice(&record);
        }
        Ok(())
    }
}

/// Clears the flags in the superblock of the kinds that were given up since the last call.
fn clear_flags(geometry: &Geometry, txn: &mut Txn<'_>, ledger: &mut Ledger) -> engine::Result<()> {
    let Ledger { given_up, is_flag_cleared, .. } = ledger;
    let mut flags = 0;
    for kind in QuotaKind::ALL {
        let at = kind as usize;
        if given_up[at] && !std::mem::replace(&mut is_flag_cleared[at], true) {
            flags |= kind.counted();
        }
    }
    if flags == 0 { Ok(()) } else { headers::clear_quota_flags(geometry, txn, flags) }
}
