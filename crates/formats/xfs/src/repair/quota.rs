//! Repairs quotas: damaged records become empty ones, and quotas are recounted at the next mount.

use disk::BlockDevice;
use operations::repair::Action;
use vfs::check::Finding;
use vfs::{Error, Ino, Result};

use super::{RepairJob, map, superblock};
use crate::check::view;
use crate::format::bytes::{put16, put32};
use crate::format::checksum;
use crate::format::extent::Extent;
use crate::format::features::Incompat;
use crate::format::inode::Fork;
use crate::format::log::dquot::{CRC_OFFSET, DQUOT_BLOCK_SIZE, MAGIC};
use crate::format::metafile::quota_path;
use crate::format::quota::{ALL_COUNTED, OLD_COUNTED, QuotaKind, counted_files, is_record};

/// Byte offset of `dd_uuid`.
const UUID_OFFSET: usize = 120;

/// Rebuilds invalid records in the quota files of the findings.
pub(super) fn records(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let survey = job.survey()?;
    let raw = &survey.sb.raw;
    let files = match survey.geometry.features.incompat(Incompat::METADIR) {
        true => in_metadir(job)?,
        false if survey.geometry.features.crc() => {
            [raw.uquotino.get(), raw.gquotino.get(), raw.pquotino.get()].map(Ino)
        }
        false => counted_files(raw).map(|file| Ino(file.unwrap_or(0))),
    };
    for (kind, &file) in QuotaKind::ALL.into_iter().zip(&files) {
        let concerned: Vec<&Finding> =
            findings.iter().filter(|f| f.place.inode == Some(file.0)).copied().collect();
        if concerned.is_empty() {
            continue;
        }
        for extent in extents(job, file)?.iter().filter(|extent| !extent.unwritten) {
            for nth in 0..extent.len {
                let block = survey.geometry.device_block(extent.start.plus(nth));
                let byte = survey.geometry.byte_of(block);
                let mut bytes = vec![0; survey.geometry.block_size()];
                if job.staging.read_at(byte, &mut bytes).is_err() {
                    continue;
                }
                let per_block = (bytes.len() / DQUOT_BLOCK_SIZE) as u64;
                let first = ((extent.offset.0 + nth) * per_block) as u32;
                let has_checksums = survey.geometry.features.crc();
                let uuid = has_checksums.then_some(&survey.geometry.meta_uuid);
                if make_anew(&mut bytes, first, kind, uuid) {
                    job.staging.write_at(byte, &bytes).map_err(Error::Device)?;
                }
            }
        }
        let what = "Invalid quota records are replaced with empty ones.";
        let actions = concerned.iter().map(|finding| Action::about(finding, what)).collect();
        job.staging.end_step(actions).map_err(Error::Device)?;
    }
    Ok(())
}

/// Returns the quota files in the metadata directory; inode 0 for those that do not exist.
fn in_metadir(job: &RepairJob) -> Result<[Ino; 3]> {
    let files = view::view(job.staging.clone(), |view| view.metafiles())?;
    Ok(QuotaKind::ALL.map(|kind| {
        let path = quota_path(kind);
        let found = files.iter().find(|(other, _)| other == path.as_bytes());
        found.map_or(Ino(0), |(_, ino)| *ino)
    }))
}

fn extents(job: &RepairJob, ino: Ino) -> Result<Vec<Extent>> {
    view::view(job.staging.clone(), |view| {
        let inode = view.inode(ino);
        inode.map(|inode| map::read(view, ino, &inode, Fork::Data).extents).unwrap_or_default()
    })
}

/// Rebuilds the invalid records in a quota block whose identifiers start with `first`. Returns whether there were any.
/// Records have checksums if they have a UUID.
fn make_anew(bytes: &mut [u8], first: u32, kind: QuotaKind, uuid: Option<&[u8; 16]>) -> bool {
    let mut is_changed = false;
    for (nth, quota) in (0..).zip(bytes.chunks_exact_mut(DQUOT_BLOCK_SIZE)) {
        // Identifiers of the last block wrap around.
        let id = first.wrapping_add(nth);
        let is_it = is_record(kind, id, quota);
        if is_it && (uuid.is_none() || checksum::check("quota", quota, CRC_OFFSET).is_ok()) {
            continue;
        }
        if !is_it {
            quota.fill(0);
            put16(quota, 0, MAGIC);
            (quota[2], quota[3]) = (1, kind.number());
            put32(quota, 4, id);
        }
        if let Some(uuid) = uuid {
            quota[UUID_OFFSET..UUID_OFFSET + 16].copy_from_slice(uuid);
            checksum::seal(quota, CRC_OFFSET);
        }
        is_changed = true;
    }
    is_changed
}

/// Marks quotas as not counted.
pub(super) fn uncount(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let what = "Quotas are marked for a quota check at the next mount.";
    superblock::change(job, findings, what, |raw| {
        let old = if raw.features().crc() { 0 } else { OLD_COUNTED };
        raw.qflags = (raw.qflags.get() & !(ALL_COUNTED | old)).into();
    })
}
