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
        let Some(quotas) = self.usage.quotas().filter(|_| !self.usage.changes().is_empty()) else {
            return Ok(());
        };
        let is_limited = self.claim == Claim::Ordinary && quotas.is_enforced();
        if is_limited {
            for change in self.usage.changes().iter().filter(|change| change.is_limited) {
                let id = (change.kind, change.id);
                let Some(file) = quotas.files[change.kind].as_ref().filter(|of| of.is_enforced)
                else {
                    continue;
                };
                if change.id == 0 || quotas.knows_limits(id) {
                    continue;
                }
                let kind = QuotaKind::ALL[change.kind];
                let limits = self.fs.read_limits(kind, file, change.id)?.unwrap_or_default();
                quotas.remember(id, file.with_defaults(limits));
            }
        }
        self.usage.enter(is_limited)
    }
}
