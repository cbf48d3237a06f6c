//! Adding blocks of records to quota files.

use vfs::Result;

use super::Quotas;
use super::ledger::{QuotaFile, RecordRun};
use crate::XfsCore;
use crate::format::quota::QuotaKind;

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
        for (kind, id) in [uid, gid, project].into_iter().enumerate() {
            let (Some(file), Some(id)) = (&quotas.files[kind], id) else { continue };
            let at = id / quotas.records_per_block;
            if !file.has_block(at) {
                self.add_records(quotas, QuotaKind::ALL[kind], file, at)?;
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
        let start = self.append_records(kind, file, at)?;
        file.runs.lock().insert(at.into(), RecordRun { start, len: 1 });
        Ok(())
    }
}
