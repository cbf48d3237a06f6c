//! Repairs the realtime section: bitmaps, summaries and the count of free extents.

use disk::BlockDevice;
use vfs::check::Finding;
use vfs::{Error, Result};

use super::{RepairJob, superblock};

/// Rebuilds the bitmap and the summary.
pub(super) fn rebuild(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let survey = job.survey()?;
    let mut failed = None;
    let mut write = |block, bytes: &[u8]| {
        let byte = survey.geometry.byte_of(block);
        failed = job.staging.write_at(byte, bytes).err().or(failed.take());
    };
    let free = survey.rebuild_realtime(&mut write);
    if let Some(error) = failed {
        return Err(Error::Device(error));
    }
    let Some(free) = free else {
        job.staging.abandon();
        return Ok(());
    };
    let what = "The realtime bitmap and summary are rebuilt from the extents of files.";
    superblock::change(job, findings, what, |raw| raw.frextents = free.into())
}

/// Returns the number of free realtime extents, if there is a section and it could be read.
pub(super) fn free_extents(job: &RepairJob) -> Result<Option<u64>> {
    Ok(job.survey()?.rebuild_realtime(&mut |_, _| {}))
}
