//! Adding blocks of records to quota files.

use operations::RunOperations;
use vfs::Result;

use super::Quotas;
use super::ledger::{QuotaFile, RecordRun};
use crate::XfsCore;
use crate::format::address::FileBlock;
use crate::format::features::Incompat;
use crate::format::inode::Fork;
use crate::format::quota::{QuotaKind, init_block};
use crate::kind::BlockKind;

impl XfsCore {
    /// Ensures that the owners of the next operation have records. The caller may hold inode locks, but must not have
    /// started the operation.
    ///
    /// # Errors
    /// `NoSpace` if a quota file cannot grow, `Corrupt` if it is damaged.
    pub(crate) fn provide_quota(
        &self,
        uid: Option<u32>,
        gid: Option<u32>,
        project: Option<u32>,
    ) -> Result<()> {
        let Some(quotas) = self.volume.quotas.get() else { return Ok(()) };
        for (kind, id) in QuotaKind::ALL.into_iter().zip([uid, gid, project]) {
            if let (Some(file), Some(id)) = (&quotas.files[kind as usize], id)
                && file.block(id / quotas.records_per_block).is_none()
            {
                self.add_records(quotas, kind, file, id / quotas.records_per_block)?;
            }
        }
        Ok(())
    }

    /// Adds the block of records with number `at` to a quota file.
    fn add_records(
        &self,
        quotas: &Quotas,
        kind: QuotaKind,
        file: &QuotaFile,
        at: u32,
    ) -> Result<()> {
        let _growth = quotas.growth.lock();
        if file.block(at).is_some() {
            return Ok(());
        }
        let geometry = &self.volume.geometry;
        let before = self.load(file.ino)?;
        let first = at.wrapping_mul(quotas.records_per_block);
        let start = self.atomically(|op| {
            let mut handle = before.clone();
            let start = op.map_new(&mut handle, Fork::Data, FileBlock(at.into()), 1)?;
            let tag = BlockKind::Dquots.of_inode(file.ino, at);
            let buffer = op.txn.create(geometry.device_block(start).0, tag)?;
            let bytes = op.txn.edit(buffer, 0..geometry.block_size());
            let has_bigtime = geometry.features.incompat(Incompat::BIGTIME);
            init_block(kind, first, has_bigtime, &geometry.meta_uuid, bytes);
            op.stage(handle);
            Ok(start)
        })?;
        file.runs.lock().insert(at.into(), RecordRun { start, len: 1 });
        Ok(())
    }
}
