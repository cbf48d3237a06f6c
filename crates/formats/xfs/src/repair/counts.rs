//! Repairs counts, once everything else is right.

use vfs::Result;
use vfs::check::Finding;

use super::{RepairJob, realtime, superblock};

/// Sets the counters of the superblock to the sums over the groups.
pub(super) fn totals(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(totals) = job.survey()?.totals() else { return Ok(()) };
    let frextents = realtime::free_extents(job)?;
    superblock::change(job, findings, "The counter is recomputed.", |raw| {
        raw.icount = totals.icount.into();
        raw.ifree = totals.ifree.into();
        raw.fdblocks = totals.fdblocks.into();
        if let Some(frextents) = frextents {
            raw.frextents = frextents.into();
        }
    })
}
