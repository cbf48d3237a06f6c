//! Repairs LSNs of structures that are after the head of the log.

use std::mem::offset_of;

use disk::BlockDevice;
use operations::repair::Action;
use vfs::check::Finding;
use vfs::{Error, Ino, Result};

use super::{RepairJob, group_of, restart};
use crate::btree::Tree;
use crate::btree::records::{BmapTree, BnoTree};
use crate::format::address::{AgBlock, AgNumber, Block};
use crate::format::ag::{
    AGF_SECTOR, AGFL_SECTOR, AGI_SECTOR, CRC_OFFSETS, RawAgf, RawAgfl, RawAgi,
};
use crate::format::btree::Side;
use crate::format::bytes::put64;
use crate::format::checksum;
use crate::format::geometry::Geometry;
use crate::format::inode;
use crate::format::log::Lsn;
use crate::format::superblock::RawSuperblock;

/// Maximum number of structures per step.
const STEP_MAX: usize = 64;
/// Byte offset of `di_lsn`.
const INODE_LSN: usize = 112;
/// Byte offset of the LSN after the sibling pointers of a tree block.
const LSN_BEHIND_SIBLINGS: usize = 8;

/// Restarts the log after all such LSNs. Implausible LSNs are reset.
pub(super) fn repair(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let (absurd, later): (Vec<&Finding>, Vec<&Finding>) =
        findings.iter().copied().partition(|finding| is_absurd(finding));
    let before = job.staging.step_count();
    let geometry = job.survey()?.geometry;
    for some in absurd.chunks(STEP_MAX) {
        for finding in some {
            take_back(job, &geometry, finding)?;
        }
        let what = "The LSN of the structure is reset.";
        let actions = some.iter().map(|finding| Action::about(finding, what)).collect();
        job.staging.end_step(actions).map_err(Error::Device)?;
    }
    if job.staging.step_count() > before && later.is_empty() {
        return Ok(());
    }
    if restart::restart(&job.staging).is_err() {
        // The device fails, or the log has no room.
        job.staging.abandon();
        return Ok(());
    }
    let what = "The log is restarted after this LSN.";
    let actions = findings.iter().map(|finding| Action::about(finding, what)).collect();
    job.staging.end_step(actions).map(drop).map_err(Error::Device)
}

fn is_absurd(finding: &Finding) -> bool {
    let cycle = finding.found.as_deref().and_then(|found| found.split(':').next()?.parse().ok());
    cycle.is_some_and(|cycle: u32| !Lsn { cycle, block: 0 }.is_plausible())
}

/// A structure with a checksum.
struct Sealed {
    byte: u64,
    len: usize,
    crc: usize,
    lsn: usize,
}

/// Resets the LSN of a structure, if its type is known.
fn take_back(job: &RepairJob, geometry: &Geometry, finding: &Finding) -> Result<()> {
    let Some(Sealed { byte, len, crc, lsn }) = find(job, geometry, finding) else { return Ok(()) };
    let mut bytes = vec![0; len];
    if job.staging.read_at(byte, &mut bytes).is_err() {
        return Ok(());
    }
    put64(&mut bytes, lsn, 0);
    checksum::seal(&mut bytes, crc);
    job.staging.write_at(byte, &bytes).map_err(Error::Device)
}

fn find(job: &RepairJob, geometry: &Geometry, finding: &Finding) -> Option<Sealed> {
    let sector = match finding.place.field {
        Some("sb_lsn") => Some((0, offset_of!(RawSuperblock, lsn))),
        Some("agf_lsn") => Some((AGF_SECTOR, offset_of!(RawAgf, lsn))),
        Some("agi_lsn") => Some((AGI_SECTOR, offset_of!(RawAgi, lsn))),
        Some("agfl_lsn") => Some((AGFL_SECTOR, offset_of!(RawAgfl, lsn))),
        _ => None,
    };
    if let Some((sector, lsn)) = sector {
        let ag = AgNumber(group_of(geometry, finding)?);
        let start = geometry.byte_of(geometry.block_of(ag, AgBlock(0)));
        let byte = start + (u64::from(sector) << geometry.sector_log);
        let len = geometry.sector_size();
        return Some(Sealed { byte, len, crc: CRC_OFFSETS[sector as usize], lsn });
    }
    let Some(block) = finding.place.block else {
        let (ag, ag_ino) = geometry.split_ino(Ino(finding.place.inode?))?;
        let (block, at) = geometry.inode_place(ag_ino);
        let byte = geometry.byte_of(geometry.block_of(ag, block)) + at as u64;
        let len = geometry.inode_size();
        return Some(Sealed { byte, len, crc: inode::CRC_OFFSET, lsn: INODE_LSN });
    };
    if block >= geometry.blocks {
        return None;
    }
    let byte = geometry.byte_of(Block(block));
    if finding.place.field == Some("bb_lsn") {
        let shape = if finding.place.group.is_some() { BnoTree::SHAPE } else { BmapTree::SHAPE };
        let lsn = shape.sibling_range(Side::Right).end + LSN_BEHIND_SIBLINGS;
        return Some(Sealed { byte, len: geometry.block_size(), crc: shape.crc_offset(), lsn });
    }
    of_file(job, geometry, byte)
}

/// Returns the block of a directory, of attributes or of a symbolic link at `byte`. A directory block may have
/// several blocks of the file system.
fn of_file(job: &RepairJob, geometry: &Geometry, byte: u64) -> Option<Sealed> {
    let len_max = geometry.dir_block_size().max(geometry.block_size());
    let left = job.staging.len().saturating_sub(byte);
    let mut bytes = vec![0; len_max.min(usize::try_from(left).unwrap_or(len_max))];
    job.staging.read_at(byte, &mut bytes).ok()?;
    let (crc, lsn) = match bytes.get(..4)? {
        b"XDB3" | b"XDD3" | b"XDF3" => (4, 16),
        b"XSLM" | b"XARM" => (12, 48),
        b"BMPZ" | b"SUMY" => (4, 24),
        _ => (12, 24),
    };
    let lens = [geometry.block_size(), geometry.dir_block_size()];
    let is_sealed =
        |len: &usize| *len <= bytes.len() && checksum::check("block", &bytes[..*len], crc).is_ok();
    let len = lens.into_iter().find(is_sealed)?;
    Some(Sealed { byte, len, crc, lsn })
}
