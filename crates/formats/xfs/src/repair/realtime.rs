//! Repairs the realtime section without groups: the bitmap, the summary and the count of free extents.

use disk::BlockDevice;
use operations::repair::Staging;
use vfs::check::{Code, Finding};
use vfs::{Error, Result};

use super::{RepairJob, superblock, volume};
use crate::check::codes;
use crate::volume::read_superblock;

/// Codes of the bitmap and the summary, which follow from files.
const OF_SPACE: [&Code; 3] =
    [codes::REALTIME_BITMAP, codes::REALTIME_LOST, codes::REALTIME_SUMMARY];

/// Other codes whose fixes do not depend on the extents of realtime files.
const OTHERS: [&Code; 8] = [
    codes::SUPERBLOCK_COUNTS,
    codes::SUPERBLOCK_COPY,
    codes::SUPERBLOCK_REST,
    codes::SUPERBLOCK_LOG_BITS,
    codes::AG_CHECKSUM,
    codes::AGF_COUNTS,
    codes::SPACE_LOST,
    codes::CNTBT_DIFFERS,
];

const ADVICE: &str = "xfs_repair -r DEVICE repairs such images";

/// Returns whether an image has a realtime section.
pub(super) fn has_section(staging: &Staging) -> bool {
    read_superblock(staging).is_ok_and(|sb| sb.raw.rblocks.get() != 0)
}

/// Refuses to repair an image without its realtime device.
pub(super) fn require_device(staging: &Staging) -> Result<()> {
    crate::open::realtime::require_device(staging)
}

/// Refuses findings whose fixes do not know the extents of realtime files.
///
/// # Errors
/// `Unsupported` for such a finding.
pub(super) fn check_findings(staging: &Staging, findings: &[Finding]) -> Result<()> {
    if !has_section(staging) {
        return Ok(());
    }
    // Copies of blocks with two owners are made for all files.
    let is_known = |code: &Code| {
        OF_SPACE.iter().chain(&OTHERS).any(|known| *known == code)
            || volume::is_of_space(code) && code != codes::SPACE_TWICE
    };
    match findings.iter().find(|finding| !is_known(finding.code)) {
        None => Ok(()),
        Some(finding) => {
            let code = finding.code.name;
            let what = format!("repairing {code} in an image with a realtime section");
            Err(Error::unsupported(what, ADVICE))
        }
    }
}

/// Refuses a section that only copies of the superblock know.
pub(super) fn refuse_restored(staging: &Staging) -> Result<()> {
    match has_section(staging) {
        false => Ok(()),
        true => {
            let what = "restoring the superblock of an image with a realtime section";
            Err(Error::unsupported(what, ADVICE))
        }
    }
}

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
