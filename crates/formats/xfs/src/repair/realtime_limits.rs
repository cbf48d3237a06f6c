//! Limits of repairs of images with a realtime section.

use operations::repair::Staging;
use vfs::check::{Code, Finding};
use vfs::{Error, Result};

use super::volume;
use crate::check::codes;
use crate::volume::read_superblock;

/// Codes of the bitmap and the summary, which follow from files.
const OF_SPACE: [&Code; 4] =
    [codes::REALTIME_BITMAP, codes::REALTIME_LOST, codes::REALTIME_SUMMARY, codes::REALTIME_HEADER];

/// Other codes whose fixes do not depend on the extents of realtime files.
const OTHERS: [&Code; 12] = [
    codes::LSN,
    codes::REALTIME_SUPERBLOCK,
    codes::SUPERBLOCK_COUNTS,
    codes::SUPERBLOCK_COPY,
    codes::SUPERBLOCK_REST,
    codes::SUPERBLOCK_LOG_BITS,
    codes::AG_CHECKSUM,
    codes::AGF_COUNTS,
    codes::SPACE_LOST,
    codes::CNTBT_DIFFERS,
    codes::QUOTA,
    codes::QUOTA_COUNTS,
];

const ADVICE: &str = "xfs_repair -r DEVICE repairs such images";

/// Returns whether an image has a realtime section: three fields of the superblock must say so. One field alone is
/// treated as damage, which the copies of the superblock correct.
pub(super) fn has_section(staging: &Staging) -> bool {
    read_superblock(staging).is_ok_and(|sb| {
        let raw = &sb.raw;
        raw.rblocks.get() != 0 && raw.rextents.get() != 0 && raw.rbmblocks.get() != 0
    })
}

/// Refuses to repair an image without its realtime device.
pub(super) fn require_device(staging: &Staging) -> Result<()> {
    if has_section(staging) { crate::open::realtime::require_device(staging) } else { Ok(()) }
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
            || volume::is_of_realtime_trees(code)
            || volume::is_of_space(code) && code != codes::SPACE_TWICE
    };
    // Wrong references make shared blocks appear to have two owners. The rebuilt ones contain blocks of files that may
    // share some.
    let has_references = findings.iter().any(|finding| volume::is_of_references(finding.code));
    let is_known = |code: &Code| is_known(code) || has_references && code == codes::REALTIME_TWICE;
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
