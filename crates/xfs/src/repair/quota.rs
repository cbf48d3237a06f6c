//! Quotas: what is damaged of them is made anew, empty, and counted by who mounts the image next.

use ::repair::Action;
use blockdev::BlockDevice;
use check::Finding;
use vfs::{Error, Ino, Result};

use super::{Job, superblock};
use crate::format::address::Block;
use crate::format::bytes::{be16, be32, put16, put32};
use crate::format::checksum;
use crate::format::log::dquot::{CRC_OFFSET, DQUOT_BLOCK_SIZE, MAGIC};

/// `d_type` of user, group and project quotas, in the order of the superblock's fields.
const TYPES: [u8; 3] = [1, 4, 2];
/// Bits of `d_type` that say the kind.
const TYPE_MASK: u8 = 7;
/// `sb_qflags`: users, groups and projects were counted.
const COUNTED: u16 = 0x4 | 0x100 | 0x400;
/// Byte of `dd_uuid`.
const UUID_OFFSET: usize = 120;

/// Makes quotas anew in blocks in which some are none.
pub(super) fn records(job: &Job, findings: &[&Finding]) -> Result<()> {
    let survey = job.survey()?;
    let raw = &survey.sb.raw;
    let files = [raw.uquotino.get(), raw.gquotino.get(), raw.pquotino.get()].map(Ino);
    for finding in findings {
        let (Some(block), Some(ino)) = (finding.place.block, finding.place.inode) else { continue };
        let Some(kind) = files.iter().position(|file| *file == Ino(ino)) else { continue };
        if block >= survey.geometry.blocks {
            continue;
        }
        let byte = survey.geometry.byte_of(Block(block));
        let mut bytes = vec![0; survey.geometry.block_size()];
        if job.staging.read_at(byte, &mut bytes).is_err() {
            continue;
        }
        make_anew(&mut bytes, TYPES[kind], &survey.geometry.meta_uuid);
        job.staging.write_at(byte, &bytes).map_err(Error::Device)?;
        let action =
            Action::about(finding, "What is none of the quotas in the block is made anew.");
        job.staging.end_step(vec![action]).map_err(Error::Device)?;
    }
    Ok(())
}

/// Makes what is no quota of that type one, in a block of them. Their identifiers follow each other.
fn make_anew(bytes: &mut [u8], kind: u8, uuid: &[u8; 16]) {
    let is_sound = |at: usize, quota: &[u8]| {
        let is_it = be16(quota, 0) == MAGIC && quota[3] & TYPE_MASK == kind;
        (is_it && checksum::check("quota", quota, CRC_OFFSET).is_ok())
            .then(|| be32(quota, 4).wrapping_sub(at as u32))
    };
    // What most of those that are sound say of where they lie; they are few.
    let mut firsts: Vec<u32> = bytes
        .chunks_exact(DQUOT_BLOCK_SIZE)
        .enumerate()
        .filter_map(|(at, quota)| is_sound(at, quota))
        .collect();
    firsts.sort_unstable();
    let Some(&first) = firsts.chunk_by(|a, b| a == b).max_by_key(|same| same.len()).map(|s| &s[0])
    else {
        return;
    };
    for (at, quota) in bytes.chunks_exact_mut(DQUOT_BLOCK_SIZE).enumerate() {
        let id = first.wrapping_add(at as u32);
        if is_sound(at, quota) == Some(first) {
            continue;
        }
        let is_it = be16(quota, 0) == MAGIC && quota[3] & TYPE_MASK == kind && be32(quota, 4) == id;
        if !is_it {
            quota.fill(0);
            put16(quota, 0, MAGIC);
            (quota[2], quota[3]) = (1, kind);
            put32(quota, 4, id);
        }
        quota[UUID_OFFSET..UUID_OFFSET + 16].copy_from_slice(uuid);
        checksum::seal(quota, CRC_OFFSET);
    }
}

/// Marks quotas as not counted.
pub(super) fn uncount(job: &Job, findings: &[&Finding]) -> Result<()> {
    let what = "Quotas are marked as not counted, so that they are counted at the next mount.";
    superblock::change(job, findings, what, |raw| {
        raw.qflags = (raw.qflags.get() & !COUNTED).into();
    })
}
