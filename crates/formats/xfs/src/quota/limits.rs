//! Enforcement of limits by operations.
//!
//! Kernels limit the owner of an inode, regardless of the process: a privileged process that writes to a file of a user
//! is limited, too. Identifier 0 has no limits. Operations that free space and changes of the owner are not limited.

use operations::Outcome;
use operations::reserve::Claim;

use crate::format::quota::QuotaKind;
use crate::op::Op;

impl Op<'_> {
    /// Enters the changes of usage of the operation into the ledger.
    ///
    /// # Errors
    /// `QuotaExceeded`, or `NoSpace` for a project, if the operation exceeds a limit.
    pub(crate) fn enter_usage(&mut self) -> Outcome<()> {
        let Some(quotas) = self.usage.quotas().filter(|_| !self.usage.is_empty()) else {
            return Ok(());
        };
        let is_limited = self.claim == Claim::Ordinary;
        while let Some((kind, id)) = self.usage.enter(quotas, is_limited)? {
            if let Some(file) = &quotas.files[kind] {
                let limits = self.fs.read_limits(QuotaKind::ALL[kind], file, id)?;
                quotas.remember((kind, id), file.with_defaults(limits.unwrap_or_default()));
            }
        }
        Ok(())
    }
}
