//! What is mended first: everything else stands on it.

use check::{Code, Finding};
use vfs::Result;

use crate::Staging;

/// How findings of some codes are mended. `J` is what a format's repair knows.
pub struct Fix<J: ?Sized> {
    /// The codes.
    pub codes: &'static [&'static Code],
    /// Mends findings with these codes, all those of one round, and ends its steps itself. What it cannot mend it
    /// leaves as it is. What is left in the staging without a step is abandoned.
    pub mend: fn(&J, &[&Finding]) -> Result<()>,
}

/// Mends what is on the lowest level on which anything can be mended; what is above may be right then, or become
/// clear. Returns whether anything was changed.
///
/// # Errors
/// If the device fails. Whatever cannot be mended is no error.
pub fn mend_lowest<J: ?Sized>(
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
            let mended = (fix.mend)(job, &concerned);
            staging.abandon();
            mended?;
        }
        if staging.step_count() > before {
            return Ok(true);
        }
    }
    Ok(false)
}
