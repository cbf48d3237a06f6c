//! Enforcement of limits by operations.
//!
//! Kernels limit the owner of an inode, regardless of the process: a privileged process that writes to a file of a user
//! is limited, too. Identifier 0 has no limits. Operations that free space and changes of the owner are not limited.

use operations::Outcome;
use operations::reserve::Claim;

use crate::format::quota::{QuotaKind, Resource};
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
                let mut limits = self
                    .fs
                    .read_limits(QuotaKind::ALL[change.kind], file, change.id)?
                    .unwrap_or_default();
                for resource in Resource::ALL {
                    let (own, defaults) =
                        (&mut limits[resource as usize], &file.defaults[resource as usize]);
                    own.soft = if own.soft == 0 { defaults.soft } else { own.soft };
                    own.hard = if own.hard == 0 { defaults.hard } else { own.hard };
                }
                quotas.remember(id, limits);
            }
        }
        self.usage.enter(is_limited)
    }
}
