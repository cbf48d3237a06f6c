//! Repairs unlinked lists.
//!
//! A list is rebuilt from the inodes without links that are reachable from the old lists. Other inodes without links
//! are lost, not open: freeing them would drop contents that `lost+found` keeps.

use std::collections::HashSet;

use operations::orphans::inactivate_all;
use operations::repair::Action;
use vfs::check::Finding;
use vfs::{Error, Result};

use super::engine::Session;
use super::group::GroupDevice;
use super::{RepairJob, group_of};
use crate::check::survey::{AgChunks, Survey};
use crate::format::address::{AgIno, AgNumber};
use crate::format::ag::{AGI_SECTOR, RawAgi, UNLINKED_BUCKETS};
use crate::format::bytes::{be16, be32, put32};
use crate::format::checksum;
use crate::format::geometry::INODES_PER_CHUNK;
use crate::format::inode::{self, Inode, NEXT_UNLINKED_OFFSET, seal_slot};

/// Frees the inodes on the lists, as a mount after a crash does.
pub(super) fn free(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(mut session) = Session::open(job) else { return Ok(()) };
    let what = "The unlinked inodes are freed.";
    let actions = findings.iter().map(|finding| Action::about(finding, what)).collect();
    session.step(actions, |fs| inactivate_all(fs).map(drop));
    Ok(())
}

/// Rebuilds the lists of all groups in the findings.
pub(super) fn rebuild(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let survey = job.survey()?;
    let chunks = survey.chunks();
    let mut groups: Vec<u32> =
        findings.iter().filter_map(|finding| group_of(&survey.geometry, finding)).collect();
    groups.sort_unstable();
    groups.dedup();
    for ag in groups {
        let concerned: Vec<&Finding> = findings
            .iter()
            .filter(|finding| group_of(&survey.geometry, finding) == Some(ag))
            .copied()
            .collect();
        group(job, &survey, AgNumber(ag), &chunks[ag as usize], &concerned)?;
    }
    Ok(())
}

fn group(
    job: &RepairJob,
    survey: &Survey,
    ag: AgNumber,
    chunks: &AgChunks,
    findings: &[&Finding],
) -> Result<()> {
    let geometry = &survey.geometry;
    let device = GroupDevice::new(&job.staging, geometry, ag);
    let Some(mut sector) = device.read_sector(AGI_SECTOR) else { return Ok(()) };
    let reached = reached(&device, chunks, &sector);
    let mut heads = [AgIno::NULL.0; UNLINKED_BUCKETS];
    for chunk in &chunks.chunks {
        for nth in (0..INODES_PER_CHUNK).filter(|nth| chunk.has(*nth) && !chunk.is_free(*nth)) {
            let ag_ino = AgIno(chunk.start + nth);
            let (block, at) = geometry.inode_place(ag_ino);
            let Some(mut bytes) = device.read_block(block) else { continue };
            let slot = &mut bytes[at..at + geometry.inode_size()];
            if inode::verify_structure(geometry, geometry.ino(ag, ag_ino), slot).is_err() {
                continue;
            }
            let is_nameless = is_nameless(slot) && reached.contains(&ag_ino.0);
            let head = &mut heads[ag_ino.0 as usize % UNLINKED_BUCKETS];
            let next = if is_nameless { std::mem::replace(head, ag_ino.0) } else { AgIno::NULL.0 };
            if be32(slot, NEXT_UNLINKED_OFFSET) != next && (is_nameless || slot[4] == 3) {
                put32(slot, NEXT_UNLINKED_OFFSET, next);
                seal_slot(slot);
                device.write_block(block, &bytes)?;
            }
        }
    }
    let first = std::mem::offset_of!(RawAgi, unlinked);
    for (bucket, head) in heads.into_iter().enumerate() {
        put32(&mut sector, first + 4 * bucket, head);
    }
    if geometry.features.crc() {
        checksum::seal(&mut sector, std::mem::offset_of!(RawAgi, crc));
    }
    device.write_sector(AGI_SECTOR, &sector)?;
    let what = format!("The lists of unlinked inodes of group {ag} are rebuilt.");
    let actions = findings.iter().map(|f| Action::about(f, what.clone())).collect();
    job.staging.end_step(actions).map(drop).map_err(Error::Device)
}

fn is_nameless(slot: &[u8]) -> bool {
    be16(slot, 2) != 0 && Inode::from_slot(slot).nlink() == 0
}

/// Returns the inodes without links that are reachable from the lists of a group, as far as each list is readable.
fn reached(device: &GroupDevice<'_>, chunks: &AgChunks, sector: &[u8]) -> HashSet<u32> {
    let (geometry, ag) = (device.geometry, device.ag);
    let first = std::mem::offset_of!(RawAgi, unlinked);
    let mut reached = HashSet::new();
    for bucket in 0..UNLINKED_BUCKETS {
        let mut at = be32(sector, first + 4 * bucket);
        while at as usize % UNLINKED_BUCKETS == bucket && chunks.is_used(at) {
            let (block, byte) = geometry.inode_place(AgIno(at));
            let Some(bytes) = device.read_block(block) else { break };
            let slot = &bytes[byte..byte + geometry.inode_size()];
            let is_right =
                inode::verify_structure(geometry, geometry.ino(ag, AgIno(at)), slot).is_ok();
            if !is_right || !is_nameless(slot) || !reached.insert(at) {
                break;
            }
            at = be32(slot, NEXT_UNLINKED_OFFSET);
        }
    }
    reached
}
