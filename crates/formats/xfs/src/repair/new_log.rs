//! Makes a new log for a file system whose log is outside of its groups: the image was truncated before the log.

use std::sync::Arc;

use disk::BlockDevice;
use operations::repair::Action;
use vfs::check::{Finding, Options};
use vfs::{Error, Result};

use super::group::GroupDevice;
use super::old::Old;
use super::restart::restart;
use super::{RepairJob, superblock};
use crate::check::survey::Survey;
use crate::format::address::{AgBlock, AgNumber, FsBlock};
use crate::format::geometry::Geometry;

/// Maximum and minimum size of the new log, in bytes, unless the lost one was smaller.
const BYTES_MAX: u64 = 64 << 20;
const BYTES_MIN: u64 = 16 << 20;

/// Places an empty log in free blocks, and stores its location in the first superblock. The trees of space are repaired
/// in the next round.
pub(super) fn repair(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let findings: Vec<&Finding> =
        findings.iter().filter(|f| f.place.field == Some("sb_logstart")).copied().collect();
    let survey = Survey::new(Arc::clone(&job.staging) as _, Options::default().threads)?;
    if findings.is_empty() || survey.sb.read_only_because().is_some() {
        return Ok(());
    }
    let Some((start, blocks)) = place(job, &survey) else { return Ok(()) };
    let Some((mut raw, found)) = superblock::read(job) else { return Ok(()) };
    (raw.logstart, raw.logblocks) = (start.0.into(), blocks.into());
    let Some(sector) = super::sealed::sealed(&raw, &found) else { return Ok(()) };
    job.staging.write_at(0, &sector).map_err(Error::Device)?;
    if restart(&job.staging).is_err() {
        job.staging.abandon();
        return Ok(());
    }
    let what = format!(
        "A new log of {blocks} blocks is created, because the image ends before the old one."
    );
    let actions = findings.iter().map(|finding| Action::about(finding, what.clone())).collect();
    job.staging.end_step(actions).map(drop).map_err(Error::Device)
}

/// Returns location and length of the new log: within the longest free run of a group.
fn place(job: &RepairJob, survey: &Survey) -> Option<(FsBlock, u32)> {
    let geometry = &survey.geometry;
    let raw = &survey.sb.raw;
    let in_blocks = |bytes: u64| u32::try_from(bytes >> geometry.block_log).unwrap_or(u32::MAX);
    let wanted = raw.logblocks.get().min(in_blocks(BYTES_MAX));
    let least = wanted.min(in_blocks(BYTES_MIN));
    // Align to whole stripe units of the log.
    let align = (raw.logsunit.get() >> geometry.block_log).max(1);
    let longest = |ag: AgNumber| {
        let device = GroupDevice::new(&job.staging, geometry, ag);
        let run = Old::read(survey, &device).free_runs().into_iter().max_by_key(|run| run.len)?;
        let start = aligned(geometry, ag, run.start, align)?;
        let len = (run.start.0 + run.len).checked_sub(start.0)?.min(wanted) / align * align;
        Some((len, ag, start))
    };
    // xfs_repair expects the root directory after a log in the first group.
    let (others, first): (Vec<_>, Vec<_>) =
        geometry.ags().filter_map(longest).partition(|(_, ag, _)| ag.0 > 0);
    let fits = |(len, ..): &(u32, AgNumber, AgBlock)| *len >= least && *len > 0;
    let best = |all: Vec<_>| all.into_iter().filter(fits).max_by_key(|(len, ..)| *len);
    best(others).or_else(|| best(first)).map(|(len, ag, start)| (geometry.fs_block(ag, start), len))
}

/// Returns the first block from `start` on whose device block is a multiple of `align`.
fn aligned(geometry: &Geometry, ag: AgNumber, start: AgBlock, align: u32) -> Option<AgBlock> {
    let at = geometry.block_of(ag, start).0;
    let skipped = at.next_multiple_of(align.into()) - at;
    Some(AgBlock(start.0.checked_add(u32::try_from(skipped).ok()?)?))
}
