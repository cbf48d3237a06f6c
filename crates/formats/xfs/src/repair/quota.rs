//! Repairs quotas: damaged records are rewritten, and usage is counted again.
//!
//! In images of version 4, and if a quota file cannot grow, quotas are marked for a count at the next mount.

use disk::BlockDevice;
use operations::repair::Action;
use vfs::check::Finding;
use vfs::{Error, Ino, Result};

use super::engine::Session;
use super::{RepairJob, map, superblock};
use crate::check::{codes, view};
use crate::format::checksum;
use crate::format::extent::Extent;
use crate::format::features::Incompat;
use crate::format::geometry::Geometry;
use crate::format::inode::Fork;
use crate::format::log::dquot::{CRC_OFFSET, DQUOT_BLOCK_SIZE};
use crate::format::metafile::quota_path;
use crate::format::quota::{
    self, ALL_COUNTED, OLD_COUNTED, QuotaKind, Resource, counted_files, is_record,
};

/// Rebuilds invalid records, and rewrites the usage in the records of all quotas that the image says were counted. Kernels
/// need not count again then. If that is impossible, they must.
pub(super) fn repair(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let before = job.staging.step_count();
    let of_files: Vec<&Finding> =
        findings.iter().filter(|finding| finding.code == codes::QUOTA).copied().collect();
    if !of_files.is_empty() {
        records(job, &of_files)?;
        job.staging.abandon();
    }
    let is_right = recount(job, findings)?;
    job.staging.abandon();
    // Without any change, the next check would find the same.
    if !is_right || job.staging.step_count() == before {
        uncount(job, findings)?;
    }
    Ok(())
}

/// Rebuilds invalid records in the quota files of the findings.
fn records(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let survey = job.survey()?;
    let raw = &survey.sb.raw;
    let files = match survey.geometry.features.incompat(Incompat::METADIR) {
        true => in_metadir(job)?,
        false if survey.geometry.features.crc() => raw.quota_inodes().map(Ino),
        false => counted_files(raw).map(|file| Ino(file.unwrap_or(0))),
    };
    let now = vfs::clock::now().map_or(0, |now| u64::try_from(now.sec).unwrap_or(0));
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
                let records = Records { kind, geometry: &survey.geometry, now };
                if records.rebuild(&mut bytes, first) {
                    job.staging.write_at(byte, &bytes).map_err(Error::Device)?;
                }
            }
        }
        let what = "Invalid quota records are rewritten, with their limits if these can be read.";
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

/// Records of a quota file.
struct Records<'r> {
    kind: QuotaKind,
    geometry: &'r Geometry,
    /// In seconds since the epoch.
    now: u64,
}

impl Records<'_> {
    /// Rebuilds the invalid records in a block whose identifiers start with `first`. Returns whether there were any.
    fn rebuild(&self, bytes: &mut [u8], first: u32) -> bool {
        let mut is_changed = false;
        for (nth, record) in (0..).zip(bytes.chunks_exact_mut(DQUOT_BLOCK_SIZE)) {
            // Identifiers of the last block wrap around.
            is_changed |= self.rebuild_one(record, first.wrapping_add(nth));
        }
        is_changed
    }

    /// Keeps the limits of a record that is of its identifier.
    fn rebuild_one(&self, record: &mut [u8], id: u32) -> bool {
        let Geometry { features, meta_uuid, .. } = self.geometry;
        let is_sealed = !features.crc()
            || quota::uuid(record) == meta_uuid
                && checksum::check("quota", record, CRC_OFFSET).is_ok();
        if is_sealed && quota::is_valid(self.kind, id, features, record) {
            return false;
        }
        if !is_record(self.kind, id, record) {
            record.fill(0);
        }
        let uuid = if features.crc() { *meta_uuid } else { [0; 16] };
        quota::set_header(self.kind, id, features.incompat(Incompat::BIGTIME), &uuid, record);
        for resource in Resource::ALL.into_iter().filter(|_| id != 0) {
            let mut quota = quota::read(record, resource);
            if !quota.has_timer() {
                quota.timer = self.now.saturating_add(quota::GRACE_DEFAULT);
                quota::write(record, resource, &quota);
            }
        }
        if features.crc() {
            checksum::seal(record, CRC_OFFSET);
        }
        true
    }
}

/// Rewrites the usage in all records. Returns whether they are right now.
fn recount(job: &RepairJob, findings: &[&Finding]) -> Result<bool> {
    let survey = job.survey()?;
    if !survey.geometry.features.crc() {
        return Ok(false);
    }
    let counted = counted_files(&survey.sb.raw);
    let kinds = || QuotaKind::ALL.into_iter().filter(|kind| counted[*kind as usize].is_some());
    let time = vfs::clock::now().unwrap_or_default();
    for kind in kinds() {
        let Some(mut session) = Session::open(job) else { return Ok(false) };
        if !session.step(Vec::new(), |fs| fs.make_quota_file(kind, time)) {
            return Ok(false);
        }
    }
    let usage = view::view(job.staging.clone(), |view| view.usage())?;
    let Some(usage) = usage else { return Ok(false) };
    let Some(mut session) = Session::open(job) else { return Ok(false) };
    let now = u64::try_from(time.sec).unwrap_or(0);
    let mut is_right = true;
    for kind in kinds() {
        let what = "The usage of quotas is counted again and written to the records.";
        let actions = findings.iter().map(|finding| Action::about(finding, what)).collect();
        is_right &=
            session.step(actions, |fs| match fs.recount(kind, &usage[kind as usize], now)? {
                true => Ok(()),
                false => Err(Error::NotFound),
            });
    }
    Ok(is_right)
}

/// Marks quotas as not counted.
fn uncount(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let what = "Quotas are marked for a quota check at the next mount.";
    superblock::change(job, findings, what, |raw| {
        let old = if raw.features().crc() { 0 } else { OLD_COUNTED };
        raw.qflags = (raw.qflags.get() & !(ALL_COUNTED | old)).into();
    })
}
