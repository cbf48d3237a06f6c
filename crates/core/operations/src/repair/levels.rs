//! Order of repairs: structures on which others depend come first.

use vfs::Result;
use vfs::check::{Code, Finding};

use crate::repair::Staging;

/// A repair function for findings of some codes. `J` is the state of a format's repair.
pub struct Fix<J: ?Sized> {
    /// Codes of the findings that it repairs.
    pub codes: &'static [&'static Code],
    /// Repairs findings with these codes, all those of one round, and ends its steps itself. Leaves unchanged what it
    /// cannot repair. Changes in the staging that are not part of a step are rolled back.
    pub repair: fn(&J, &[&Finding]) -> Result<()>,
}

/// Repairs findings of the lowest level at which anything can be repaired; this may resolve or clarify findings of
/// higher levels. Returns whether anything was changed.
///
/// # Errors
/// If the device fails. A finding that cannot be repaired is not an error.
pub fn repair_lowest<J: ?Sized>(
    staging: &Staging,
    job: &J,
    levels: &[&[Fix<J>]],
    findings: &[Finding],
) -> Result<bool> {
    let before = staging.step_count();
    for level in levels {
        for fix in *level {
            let concerned: Vec<&Finding> =
                findings.iter().filter(|finding| fix.codes.contains(&finding.code)).collect();
            if concerned.is_empty() {
                continue;
            }
            let repaired = (fix.repair)(job, &concerned);
            staging.abandon();
            repaired?;
        }
        if staging.step_count() > before {
            return Ok(true);
        }
    }
    Ok(false)
}
