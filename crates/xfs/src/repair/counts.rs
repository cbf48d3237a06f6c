//! What is counted, once everything else is right.

use ::repair::Action;
use check::Finding;
use vfs::{Error, Result};

use super::{Job, begin, superblock};

/// Sets the counters of the superblock to what the groups have.
pub(super) fn totals(job: &Job, findings: &[&Finding]) -> Result<()> {
    let Some(totals) = job.survey()?.totals() else { return Ok(()) };
    superblock::change(job, findings, "The counter is set to what was counted.", |raw| {
        raw.icount = totals.icount.into();
        raw.ifree = totals.ifree.into();
        raw.fdblocks = totals.fdblocks.into();
    })
}

/// Starts the log again behind all places that structures say they were written at.
pub(super) fn log_behind(job: &Job, findings: &[&Finding]) -> Result<()> {
    if begin::restart(&job.staging).is_err() {
        // No cycle is left, or the device fails.
        job.staging.abandon();
        return Ok(());
    }
    let what = "The log is started anew behind that place.";
    let actions = findings.iter().map(|finding| Action::about(finding, what)).collect();
    job.staging.end_step(actions).map(drop).map_err(Error::Device)
}
