//! Repairs the superblock and its copies.
//!
//! Fields that all superblocks of an image must share are decided by majority. Fields that only the first one has are
//! kept if they are valid.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use disk::{BlockDevice, OverlayDevice};
use operations::repair::{Action, Staging};
use vfs::check::{Finding, Observer, Options};
use vfs::{Error, Ino, Result};
use zerocopy::{FromBytes, IntoBytes};

use super::group::GroupDevice;
use super::sealed::{SECTOR_SIZE_MAX, sealed};
use super::{RepairJob, group_of};
use super::{derived, log_place};
use crate::check::codes;
use crate::check::superblock::numbers;
use crate::check::superblock_fields::{
    REALTIME_EXTENT_MIN, RealtimeFields, are_bits_right, are_realtime_groups_right,
    chunk_alignment, has_large_sectors, is_chunk_alignment_right, is_log_shape_right,
    is_realtime_extent, is_sparse_alignment_right, is_stripe, sparse_alignment,
};
use crate::format::address::{AgBlock, AgNumber};
use crate::format::ag::{AGF_MAGIC, AGF_SECTOR, AGI_MAGIC, AGI_SECTOR, RawAgf, RawAgi};
use crate::format::features::{Incompat, RoCompat, Version};
use crate::format::geometry::Geometry;
use crate::format::quota::flags_of_other_version;
use crate::format::superblock::{
    MAGIC, REALTIME_GROUP_LOG, RawSuperblock, SUPERBLOCK_SIZE, Superblock,
};
use crate::log::{log_end, uuid_of_log};
use crate::open::superblock_copy::Copy;
use crate::open::{cut, root};

/// Number of groups whose headers are read for the UUID.
const GROUPS_ASKED: usize = 16;
/// `NULLFSINO`.
const NO_INODE: u64 = u64::MAX;
/// Default maximum share of space for inodes, in percent, if it is unknown.
const INODES_PERCENT: u8 = 25;
/// Maximum number of fields in which a damaged first superblock may differ from the copies. With more differences it
/// does not belong to this image.
const DIFFERENCES_MAX: usize = 8;
/// Limit for counting the findings of a check.
const FAULTS_MAX: usize = 100_000;
/// Weight of a missing log, where something else was taken for it.
const LOG_WEIGHT: usize = 1000;

/// Replaces the first superblock if it is unusable, or if most copies contradict it.
pub(super) fn make_readable(staging: &Arc<Staging>) -> Result<()> {
    let mut sector = vec![0; SECTOR_SIZE_MAX.min(staging.len()) as usize];
    if staging.read_at(0, &mut sector).is_err() {
        // Sectors that cannot be read are not written.
        return Ok(());
    }
    let Ok((found, _)) = RawSuperblock::read_from_prefix(&sector) else { return Ok(()) };
    let parsed = Superblock::parse(&sector, staging.len());
    // A truncated image has a usable superblock nevertheless.
    let is_usable = Superblock::parse(&sector, u64::MAX).is_ok();
    let copies: Vec<RawSuperblock> = Copy::all(&**staging).iter().filter_map(Copy::raw).collect();
    let raw = chosen(staging, &sector, (&found, is_usable), &copies);
    let Some(fitted) = cut::fitted(&raw, staging.len()) else { return Ok(()) };
    let is_same = raw.as_bytes() == found.as_bytes();
    let error = match parsed {
        Ok(_) if is_same => return Ok(()),
        Ok(_) => None,
        Err(error) => Some(error),
    };
    let Some(sealed) = sealed(&fitted, &sector) else {
        // An unsupported image is not changed.
        return error.map_or(Ok(()), |error| match error {
            Error::Unsupported(_) => Err(error),
            _ => Ok(()),
        });
    };
    if Superblock::parse(&padded(&sealed, &sector), staging.len()).is_err() {
        return match error {
            Some(Error::Unsupported(unsupported)) => Err(Error::Unsupported(unsupported)),
            _ => Ok(()),
        };
    }
    staging.write_at(0, &sealed).map_err(Error::Device)?;
    let is_marked = found.features().incompat.contains(Incompat::NEEDSREPAIR);
    let (finding, what) = said(error, is_same, is_marked);
    let (before, blocks) = (raw.dblocks.get(), fitted.dblocks.get());
    let what = match before == blocks {
        true => what.to_owned(),
        false => format!(
            "The file system is truncated from {before} blocks to the {blocks} of the image; \
             everything after them is lost."
        ),
    };
    let action = Action::about(&finding.in_group(0_u64), what);
    staging.end_step(vec![action]).map(drop).map_err(Error::Device)
}

/// Returns the repaired first superblock. Its file system may be longer than the image.
fn chosen(
    staging: &Arc<Staging>,
    sector: &[u8],
    (found, is_usable): (&RawSuperblock, bool),
    copies: &[RawSuperblock],
) -> RawSuperblock {
    let finished = |raw: RawSuperblock| finished(staging, raw, found, copies);
    let election = match (copies.is_empty(), is_usable) {
        (true, true) => Some(Election::Tie(derived::others(staging, found))),
        (true, false) => derived::find(staging, found).map(|raw| Election::Other(Box::new(raw))),
        (false, _) => None,
    };
    match election.unwrap_or_else(|| elected(found, copies)) {
        Election::First => finished(found.clone()),
        Election::Other(raw) => finished(*raw),
        Election::Tie(others) if others.is_empty() => finished(found.clone()),
        Election::Tie(others) => {
            let faults = |raw: &RawSuperblock| {
                let sector = sealed(raw, sector);
                sector.map_or((Reverse(0), usize::MAX), |sector| faults(staging, &sector))
            };
            let all = std::iter::once(found.clone()).chain(others).map(finished);
            // The first of several equally good ones.
            all.min_by_key(faults).unwrap_or_else(|| finished(found.clone()))
        }
    }
}

/// Completes an elected superblock with fields that depend on more than superblocks.
fn finished(
    staging: &Staging,
    mut raw: RawSuperblock,
    first: &RawSuperblock,
    copies: &[RawSuperblock],
) -> RawSuperblock {
    raw.inprogress = 0;
    let incompat = raw.features_incompat.get() & !Incompat::NEEDSREPAIR.bits();
    raw.features_incompat = incompat.into();
    // There is no other evidence of a realtime device.
    if (raw.rextents.get(), raw.rbmblocks.get()) == (0, 0) {
        raw.rblocks = 0.into();
    }
    set_uuid(staging, &mut raw, first, copies);
    set_root(staging, &mut raw, copies);
    set_log(staging, &mut raw, first, copies);
    raw
}

/// Returns the finding about the first superblock, and the description of its repair. `is_same`: it agrees with its
/// copies.
fn said(error: Option<Error>, is_same: bool, is_marked: bool) -> (Finding, &'static str) {
    match error {
        Some(Error::Corrupt(damage)) if damage.is_checksum() && is_same => (
            Finding::of_damage(codes::SUPERBLOCK_CHECKSUM, &damage),
            "The checksum of the superblock is recomputed, because its fields match the copies.",
        ),
        Some(Error::Corrupt(damage)) => (
            Finding::of_damage(codes::SUPERBLOCK, &damage),
            "The superblock is restored from its copies.",
        ),
        _ if is_marked => {
            (Finding::new(codes::NEEDS_REPAIR), "The mark that the image needs repair is cleared.")
        }
        _ => (
            Finding::new(codes::SUPERBLOCK_FIELD),
            "The superblock is set to the values in most copies.",
        ),
    }
}

/// Sets the needs-repair flag again if it was set, because not everything is repaired.
pub(super) fn mark_again(staging: &Arc<Staging>) -> Result<()> {
    let mut sector = vec![0; SECTOR_SIZE_MAX.min(staging.len()) as usize];
    if staging.below().read_at(0, &mut sector).is_err() {
        return Ok(());
    }
    let was = RawSuperblock::read_from_prefix(&sector);
    let is_marked = |raw: &RawSuperblock| {
        let features = raw.features();
        raw.magicnum.get() == MAGIC && features.incompat(Incompat::NEEDSREPAIR)
    };
    if !was.is_ok_and(|(raw, _)| is_marked(&raw)) || staging.read_at(0, &mut sector).is_err() {
        return Ok(());
    }
    let Ok((mut raw, _)) = RawSuperblock::read_from_prefix(&sector) else { return Ok(()) };
    if raw.magicnum.get() != MAGIC || is_marked(&raw) {
        return Ok(());
    }
    let incompat = raw.features_incompat.get() | Incompat::NEEDSREPAIR.bits();
    raw.features_incompat = incompat.into();
    let Some(sealed) = sealed(&raw, &sector) else { return Ok(()) };
    staging.write_at(0, &sealed).map_err(Error::Device)?;
    let what = "The mark that the image needs repair is set again, because the repair is \
                incomplete.";
    staging.end_step(vec![Action::new(what)]).map(drop).map_err(Error::Device)
}

/// Returns the fields that all superblocks must share.
fn key(raw: &RawSuperblock) -> (Vec<u64>, [u8; 16], [u8; 16]) {
    let mut all: Vec<u64> = numbers(raw).into_iter().map(|(_, number)| number).collect();
    let incompat = raw.features_incompat.get() & !Incompat::NEEDSREPAIR.bits();
    let more = [
        raw.features_compat.get(),
        raw.features2.get(),
        raw.features_ro_compat.get(),
        incompat,
        raw.spino_align.get(),
    ];
    // Version 4 ends before them, except for the second, which kernels change in the first superblock only.
    let is_shared = raw.features().crc();
    all.extend(more.map(|number| if is_shared { u64::from(number) } else { 0 }));
    let has_meta_uuid = raw.features().incompat(Incompat::META_UUID);
    (all, raw.uuid, if has_meta_uuid { raw.meta_uuid } else { [0; 16] })
}

/// The result of the vote between superblocks.
enum Election {
    First,
    /// The superblock that most copies agree with, or all if the first one is invalid.
    Other(Box<RawSuperblock>),
    /// Alternatives with as many votes as the first superblock.
    Tie(Vec<RawSuperblock>),
}

/// Counts the findings of a check, up to a limit.
#[derive(Default)]
struct Count(AtomicUsize);

impl Observer for Count {
    fn found(&self, finding: Finding) {
        let weight = match finding.code {
            // A difference between the two does not count against either, and LSNs after the head are detected only
            // with a log.
            code if code == codes::SUPERBLOCK_COPY || code == codes::LSN => 0,
            code if code == codes::LOG => LOG_WEIGHT,
            _ => 1,
        };
        self.0.fetch_add(weight, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed) > FAULTS_MAX
    }
}

/// Returns how bad an image is with this first sector. The number of visible inodes comes first, because invisible ones
/// have no findings.
fn faults(staging: &Arc<Staging>, sector: &[u8]) -> (Reverse<u64>, usize) {
    let none = (Reverse(0), usize::MAX);
    let view = OverlayDevice::new(Arc::clone(staging) as _);
    if view.write_at(0, sector).is_err() {
        return none;
    }
    let count = Count::default();
    match crate::check::check(Arc::new(view), &Options::default(), &count) {
        Ok(summary) => {
            let gap = if summary.is_complete { 0 } else { FAULTS_MAX };
            (Reverse(summary.inodes), count.0.into_inner() + gap)
        }
        Err(_) => none,
    }
}

/// Returns the superblock that most agree with.
fn elected(first: &RawSuperblock, copies: &[RawSuperblock]) -> Election {
    let mut votes: HashMap<_, (usize, &RawSuperblock)> = HashMap::new();
    for copy in copies {
        votes.entry(key(copy)).or_insert((0, copy)).0 += 1;
    }
    let own = votes.get(&key(first)).map_or(0, |(count, _)| *count);
    let Some((count, best)) = votes.into_values().max_by_key(|(count, _)| *count) else {
        return Election::First;
    };
    let (ours, theirs) = (key(first), key(best));
    let differences = ours.0.iter().zip(&theirs.0).filter(|(a, b)| a != b).count();
    let is_ours = first.magicnum.get() == MAGIC
        && differences <= DIFFERENCES_MAX
        && (ours.1 == theirs.1 || differences == 0);
    if !is_ours {
        return Election::Other(Box::new(best.clone()));
    }
    // A single copy has the same weight as the first superblock, while that is usable.
    let is_usable = {
        let mut alone = first.clone();
        alone.inprogress = 0;
        let size = usize::from(alone.sectsize.get());
        sealed(&alone, &vec![0; size.max(SUPERBLOCK_SIZE)])
            .is_some_and(|sector| Superblock::parse(&sector, u64::MAX).is_ok())
    };
    if ours == theirs || count < own + 1 {
        return Election::First;
    }
    let merged = merged(first, best);
    // Writers of an image do not use a feature that is missing in some superblocks.
    let is_known = |raw: &RawSuperblock| {
        let features = raw.features();
        let is_of_old_times = features.crc() && features.version_bits.contains(Version::SHARED);
        !is_of_old_times && features.compat == 0 && RoCompat::all().contains(features.ro_compat)
    };
    let is_clear = count > own + 1 || !is_usable || is_known(best) && !is_known(first);
    if is_clear { Election::Other(Box::new(merged)) } else { Election::Tie(vec![merged]) }
}

/// Returns the first superblock with the shared fields of a copy.
fn merged(first: &RawSuperblock, copy: &RawSuperblock) -> RawSuperblock {
    // Flags that are only in the first one.
    let own_bits = (Version::ATTR | Version::QUOTA | Version::DALIGN | Version::NLINK).bits();
    let versionnum = copy.versionnum.get() & !own_bits | first.versionnum.get() & own_bits;
    let of_version = if copy.features().crc() { Version::OF_VERSION_5.bits() } else { 0 };
    let versionnum = versionnum | of_version;
    RawSuperblock {
        versionnum: versionnum.into(),
        rootino: first.rootino,
        rbmino: first.rbmino,
        rsumino: first.rsumino,
        metadirino: first.metadirino,
        fname: first.fname,
        imax_pct: first.imax_pct,
        icount: first.icount,
        ifree: first.ifree,
        fdblocks: first.fdblocks,
        frextents: first.frextents,
        uquotino: first.uquotino,
        gquotino: first.gquotino,
        pquotino: first.pquotino,
        qflags: first.qflags,
        flags: first.flags,
        features2: if copy.features().crc() { copy.features2 } else { first.features2 },
        bad_features2: if copy.features().crc() { copy.bad_features2 } else { first.bad_features2 },
        unit: first.unit,
        width: first.width,
        features_log_incompat: first.features_log_incompat,
        lsn: first.lsn,
        ..copy.clone()
    }
}

/// Sets the UUID to that of the group headers, if they all agree and none has that of the superblock.
fn set_uuid(
    staging: &Staging,
    raw: &mut RawSuperblock,
    first: &RawSuperblock,
    copies: &[RawSuperblock],
) {
    if !raw.features().crc() {
        return set_uuid_of_log(staging, raw, first, copies);
    }
    let Some(geometry) = geometry(raw) else { return };
    let mut votes: HashMap<[u8; 16], u32> = HashMap::new();
    for ag in geometry.ags().take(GROUPS_ASKED) {
        let device = GroupDevice::new(staging, &geometry, ag);
        let agf =
            device.read_sector(AGF_SECTOR).and_then(|s| Some(RawAgf::read_from_prefix(&s).ok()?.0));
        let agi =
            device.read_sector(AGI_SECTOR).and_then(|s| Some(RawAgi::read_from_prefix(&s).ok()?.0));
        let agf = agf.filter(|agf| agf.magicnum.get() == AGF_MAGIC).map(|agf| agf.uuid);
        let agi = agi.filter(|agi| agi.magicnum.get() == AGI_MAGIC).map(|agi| agi.uuid);
        for uuid in agf.into_iter().chain(agi) {
            *votes.entry(uuid).or_default() += 1;
        }
    }
    let Some((uuid, count)) = votes.iter().max_by_key(|(_, count)| **count) else { return };
    if votes.contains_key(&geometry.meta_uuid) || *count < 2 {
        return;
    }
    match raw.features().incompat(Incompat::META_UUID) {
        true => raw.meta_uuid = *uuid,
        false => raw.uuid = *uuid,
    }
}

/// Sets the UUID of version 4 to the one of several superblocks that the log contains.
fn set_uuid_of_log(
    staging: &Staging,
    raw: &mut RawSuperblock,
    first: &RawSuperblock,
    copies: &[RawSuperblock],
) {
    let size = usize::from(raw.sectsize.get()).max(SUPERBLOCK_SIZE);
    let sector = sealed(raw, &vec![0; size]);
    let sb = sector.and_then(|sector| Superblock::parse(&sector, u64::MAX).ok());
    let Some(sb) = sb else { return };
    let Ok(Some(end)) = log_end(staging, &sb) else { return };
    let uuid = end.last.and_then(|last| uuid_of_log(staging, &sb, last.lsn));
    let mut all = std::iter::once(first).chain(copies).map(|raw| raw.uuid);
    if let Some(uuid) = uuid.filter(|uuid| all.any(|known| known == *uuid)) {
        raw.uuid = uuid;
    }
}

/// Sets the root directory to the number in most superblocks, together with the inodes of an absent realtime device,
/// which are the next two. In case of a tie, the number of an actual directory wins.
fn set_root(staging: &Staging, raw: &mut RawSuperblock, copies: &[RawSuperblock]) {
    let Some(geometry) = geometry(raw) else { return };
    let has_metadir = geometry.features.incompat(Incompat::METADIR);
    let mut votes: BTreeMap<u64, u32> = BTreeMap::new();
    for said in std::iter::once(&*raw).chain(copies) {
        let own = [(said.rootino, 0), (said.rbmino, 1), (said.rsumino, 2)];
        let with_metadir = [(said.rootino, 0), (said.metadirino, 1)];
        let roots = if has_metadir { &with_metadir[..] } else { &own };
        for root in roots.iter().filter_map(|(ino, nth)| ino.get().checked_sub(*nth)) {
            let is_there = |nth| geometry.split_ino(Ino(root + nth)).is_some();
            if root < NO_INODE - 2 && (0..3).all(is_there) {
                *votes.entry(root).or_default() += 1;
            }
        }
    }
    let is_dir = |ino: u64| {
        root::read_inode(staging, &geometry, Ino(ino)).is_some_and(|inode| inode.is_dir())
    };
    let most = votes.values().max().copied();
    let of_most = votes.iter().filter(|(_, count)| Some(**count) == most).map(|(ino, _)| *ino);
    let voted = of_most.max_by_key(|ino| is_dir(*ino));
    // Another directory may be followed by two files, too, so a damaged root stays the root if several fields name it.
    if voted.is_some_and(is_dir) || most > Some(1) {
        return voted.into_iter().for_each(|ino| root::set(raw, Ino(ino)));
    }
    let found = parsed(raw).and_then(|sb| root::find(staging, &sb)).map(|ino| ino.0);
    found.or(voted).into_iter().for_each(|ino| root::set(raw, Ino(ino)));
}

/// Sets the location of the log according to its records, if no two superblocks agree on it. A superblock without the
/// magic number does not count.
fn set_log(
    staging: &Staging,
    raw: &mut RawSuperblock,
    first: &RawSuperblock,
    copies: &[RawSuperblock],
) {
    let all = std::iter::once(first).chain(copies).filter(|other| other.magicnum.get() == MAGIC);
    if all.filter(|other| other.logstart == raw.logstart).count() < 2
        && let Some(sb) = parsed(raw).filter(|sb| sb.features.crc())
    {
        log_place::set(staging, &sb, raw);
    }
}

/// Returns the geometry of a superblock with consistent fields.
fn geometry(raw: &RawSuperblock) -> Option<Geometry> {
    parsed(raw).map(|sb| Geometry::new(&sb))
}

fn parsed(raw: &RawSuperblock) -> Option<Superblock> {
    let size = usize::from(raw.sectsize.get()).max(SUPERBLOCK_SIZE);
    let mut raw = raw.clone();
    raw.inprogress = 0;
    let sector = sealed(&raw, &vec![0; size])?;
    Superblock::parse(&sector, u64::MAX).ok()
}

fn padded(sector: &[u8], found: &[u8]) -> Vec<u8> {
    let mut all = found.to_vec();
    if all.len() < sector.len() {
        all.resize(sector.len(), 0);
    }
    all[..sector.len()].copy_from_slice(sector);
    all
}

/// Reads the first superblock.
pub(super) fn read(job: &RepairJob) -> Option<(RawSuperblock, Vec<u8>)> {
    let mut sector = vec![0; SECTOR_SIZE_MAX.min(job.staging.len()) as usize];
    job.staging.read_at(0, &mut sector).ok()?;
    let (raw, _) = RawSuperblock::read_from_prefix(&sector).ok()?;
    Some((raw, sector))
}

/// Changes the first superblock in a separate step.
pub(super) fn change(
    job: &RepairJob,
    findings: &[&Finding],
    what: &str,
    change: impl FnOnce(&mut RawSuperblock),
) -> Result<()> {
    let Some((mut raw, found)) = read(job) else { return Ok(()) };
    change(&mut raw);
    let Some(sector) = sealed(&raw, &found) else { return Ok(()) };
    job.staging.write_at(0, &sector).map_err(Error::Device)?;
    let actions = findings.iter().map(|finding| Action::about(finding, what)).collect();
    job.staging.end_step(actions).map(drop).map_err(Error::Device)
}

/// Sets fields to valid values.
pub(super) fn fields(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let first: Vec<&Finding> =
        findings.iter().filter(|finding| finding.place.group.unwrap_or(0) == 0).copied().collect();
    if !first.is_empty() {
        let survey = job.survey()?;
        let is_ino = |ino: u64| ino != 0 && survey.geometry.split_ino(Ino(ino)).is_some();
        // Quota files that do not exist.
        let is_gone = |ino: u64| {
            let inode = root::read_inode(&*job.staging, &survey.geometry, Ino(ino));
            inode.is_none_or(|inode| inode.mode() == 0)
        };
        let raw = &survey.sb.raw;
        let has_metadir = survey.geometry.features.incompat(Incompat::METADIR);
        let inos = [&raw.uquotino, &raw.gquotino, &raw.pquotino].map(|ino| ino.get());
        let are_gone = inos.map(|ino| ![0, NO_INODE].contains(&ino) && is_gone(ino));
        change(job, &first, "The superblock is set to valid values.", |raw| {
            let inos = [&mut raw.uquotino, &mut raw.gquotino, &mut raw.pquotino];
            for (ino, _) in inos.into_iter().zip(are_gone).filter(|(_, is_gone)| *is_gone) {
                *ino = 0.into();
            }
            let root = raw.rootino.get();
            if has_metadir {
                without_old_inodes(raw);
                if is_ino(root.wrapping_add(1)) {
                    raw.metadirino = root.wrapping_add(1).into();
                }
                return plausible(raw, is_ino);
            }
            for (ino, nth) in [(&mut raw.rbmino, 1), (&mut raw.rsumino, 2)] {
                let own = root.wrapping_add(nth);
                if ino.get() != own && is_ino(own) {
                    *ino = own.into();
                }
            }
            plausible(raw, is_ino);
        })?;
    }
    let others: Vec<&Finding> =
        findings.iter().filter(|finding| finding.place.group.unwrap_or(0) != 0).copied().collect();
    copies(job, &others)
}

/// Clears the inodes that are in the metadata directory instead.
fn without_old_inodes(raw: &mut RawSuperblock) {
    for ino in
        [&mut raw.rbmino, &mut raw.rsumino, &mut raw.uquotino, &mut raw.gquotino, &mut raw.pquotino]
    {
        *ino = 0.into();
    }
}

/// Sets the flag for quotas, which images with a metadata directory may have without quota files. Without it, kernels
/// and xfs_repair do not use existing files.
fn plausible_quota_flag(raw: &RawSuperblock, bits: &mut Version) {
    if raw.features().incompat(Incompat::METADIR) {
        bits.insert(Version::QUOTA);
    }
}

/// Replaces the values that no file system can have.
fn plausible(raw: &mut RawSuperblock, is_ino: impl Fn(u64) -> bool) {
    plausible_alignment(raw);
    if raw.imax_pct > 100 {
        raw.imax_pct = INODES_PERCENT;
    }
    let mut bits = Version::from_bits_retain(raw.versionnum.get());
    plausible_stripe(raw, &mut bits);
    (raw.flags, raw.shared_vn, raw.bad_features2) = (0, 0, raw.features2);
    plausible_realtime(raw);
    plausible_log(raw, &mut bits);
    plausible_quota(raw, &mut bits, is_ino);
    raw.versionnum = bits.bits().into();
}

fn plausible_alignment(raw: &mut RawSuperblock) {
    if let Some((align, sparse)) = sparse_alignment(raw).filter(|_| !is_sparse_alignment_right(raw))
    {
        (raw.inoalignmt, raw.spino_align) = (align.into(), sparse.into());
    }
    let features = raw.features();
    if features.crc() && !features.incompat(Incompat::SPINODES) {
        raw.spino_align = 0.into();
    }
    if !is_chunk_alignment_right(raw) {
        raw.inoalignmt = chunk_alignment(raw).into();
    }
}

fn plausible_stripe(raw: &mut RawSuperblock, bits: &mut Version) {
    let is_striped = is_stripe(raw);
    if !is_striped {
        (raw.unit, raw.width) = (0.into(), 0.into());
    }
    bits.set(Version::DALIGN, is_striped);
}

/// Corrects the shape of the realtime section, and the fields that follow from its size.
fn plausible_realtime(raw: &mut RawSuperblock) {
    if !are_realtime_groups_right(raw) {
        let blocks = 1_u32 << (REALTIME_GROUP_LOG - raw.blocklog.min(16));
        raw.rgblklog = REALTIME_GROUP_LOG - raw.blocklog.min(16);
        raw.rgextents = (blocks / raw.rextsize.get().max(1)).into();
        // The blocks of such a section have no addresses.
        (raw.rblocks, raw.rgcount) = (0.into(), 0.into());
    }
    if !is_realtime_extent(raw) {
        let blocks = (REALTIME_EXTENT_MIN >> raw.blocklog.min(31)).max(1) as u32;
        raw.rextsize = blocks.into();
    }
    let fields = RealtimeFields::of(raw);
    raw.rextents = fields.extents.into();
    raw.rbmblocks = u32::try_from(fields.bitmap_blocks).unwrap_or(u32::MAX).into();
    raw.rextslog = fields.extents_log;
    if fields.extents == 0 {
        raw.frextents = 0.into();
    }
}

/// Corrects the version's bits, and the sectors and the stripe of the log that depend on them.
fn plausible_log(raw: &mut RawSuperblock, bits: &mut Version) {
    let is_version_5 = raw.features().crc();
    let are_bits_right = are_bits_right(raw);
    if !are_bits_right {
        bits.set(Version::SECTOR, has_large_sectors(raw));
        bits.set(Version::SHARED, bits.contains(Version::SHARED) && !is_version_5);
        if is_version_5 {
            bits.insert(Version::OF_VERSION_5);
        }
    }
    let has_sectors = bits.contains(Version::SECTOR);
    let is_shape_right = is_log_shape_right(raw);
    if !is_shape_right {
        raw.logsunit = 1.into();
    }
    if !is_shape_right || !are_bits_right && has_sectors != (raw.logsectsize.get() != 0) {
        raw.logsectlog = if has_sectors { raw.sectlog } else { 0 };
        raw.logsectsize = if has_sectors { raw.sectsize } else { 0.into() };
    }
}

/// Makes the flags for quotas agree with the version and the quota files, and removes numbers that are not inodes.
fn plausible_quota(raw: &mut RawSuperblock, bits: &mut Version, is_ino: impl Fn(u64) -> bool) {
    raw.qflags = (raw.qflags.get() & !flags_of_other_version(raw)).into();
    let features = raw.features();
    let inos = [raw.uquotino.get(), raw.gquotino.get(), raw.pquotino.get()];
    let has_quota = inos.into_iter().any(|ino| ino != NO_INODE && is_ino(ino));
    if has_quota {
        bits.insert(Version::QUOTA);
    }
    plausible_quota_flag(raw, bits);
    if !has_quota && !features.incompat(Incompat::METADIR) {
        bits.remove(Version::QUOTA);
        raw.qflags = 0.into();
    }
    let projects = if features.crc() { Some(&mut raw.pquotino) } else { None };
    for ino in [&mut raw.uquotino, &mut raw.gquotino].into_iter().chain(projects) {
        if ![0, NO_INODE].contains(&ino.get()) && !is_ino(ino.get()) {
            *ino = NO_INODE.into();
        }
    }
}

/// Clears the log incompat bits of an empty log.
pub(super) fn log_bits(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    change(job, findings, "Feature bits that the log does not use are cleared.", |raw| {
        raw.features_log_incompat = 0.into();
    })
}

/// Removes the quota files, and if there were any, all quota flags: mkfs may request quotas, but only kernels make the
/// files.
fn without_quota(raw: &mut RawSuperblock) {
    let inos = [&mut raw.uquotino, &mut raw.gquotino, &mut raw.pquotino];
    let had = inos.iter().any(|ino| ![0, NO_INODE].contains(&ino.get()));
    if had {
        inos.into_iter().for_each(|ino| *ino = 0.into());
        raw.qflags = 0.into();
        raw.versionnum = (raw.versionnum.get() & !Version::QUOTA.bits()).into();
    }
}

/// Rewrites copies from the first superblock.
pub(super) fn copies(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some((raw, found)) = read(job) else { return Ok(()) };
    let survey = job.survey()?;
    let geometry = &survey.geometry;
    for same in findings.chunk_by(|a, b| a.place.group == b.place.group) {
        let Some(ag) = group_of(geometry, same[0]).filter(|ag| *ag != 0) else { continue };
        let byte = geometry.byte_of(geometry.block_of(AgNumber(ag), AgBlock(0)));
        let mut copy = raw.clone();
        // mkfs sets this flag, too. Copies with it contain no quota files.
        copy.inprogress = 1;
        copy.lsn = 0.into();
        without_quota(&mut copy);
        let Some(sector) = sealed(&copy, &found) else { continue };
        if job.staging.write_at(byte, &sector).is_err() {
            job.staging.abandon();
            continue;
        }
        let what = "The copy of the superblock is rewritten.";
        let actions = same.iter().map(|finding| Action::about(finding, what)).collect();
        job.staging.end_step(actions).map_err(Error::Device)?;
    }
    Ok(())
}
