//! Checks the superblock and its copies, and replays the log before anything else is checked.

use std::mem::offset_of;
use std::sync::Arc;
use vfs::hint::{Advice, Hint, Setting};

use disk::{BlockDevice, OverlayDevice};
use engine::Corruption;
use vfs::check::{Finding, Observer, Options, Phase};
use vfs::{Error, Result};
use zerocopy::{FromBytes, IntoBytes};

use super::announced::Announced;
use super::codes;
use super::context::Context;
use super::quota::Uncounted;
use super::superblock_fields::check_alone;
use crate::XfsCore;
use crate::format::address::AgNumber;
use crate::format::checksum;
use crate::format::features::{Features, Incompat, Version};
use crate::format::superblock::{CRC_OFFSET, MAGIC, RawSuperblock, SUPERBLOCK_SIZE, Superblock};
use crate::fs::OpenOptions;
use crate::log::{LogEnd, log_end, log_is_clean, uuid_of_log};
use crate::open::cut;
use crate::open::superblock_copy::Copy;
use crate::volume::read_superblock;

/// Maximum size of a sector in bytes.
const SECTOR_SIZE_MAX: u64 = 32 << 10;
/// Size of the cache for a replay, in bytes.
const REPLAY_CACHE_BYTES: usize = 64 << 20;

/// An image to be checked, with its log replayed.
pub(super) struct CheckedImage {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) sb: Superblock,
    pub(super) transactions: u64,
    /// True if the log had nothing to replay.
    pub(super) is_log_clean: bool,
    /// The head of the log.
    pub(super) head: Option<u64>,
    /// Blocks that quotas need not count, because they were changed in memory.
    pub(super) uncounted: Uncounted,
}

/// Finds the superblock, or a copy. Returns `None` if there is none, which is reported.
pub(super) fn open(
    device: Arc<dyn BlockDevice>,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Option<CheckedImage>> {
    let Some(device) = with_superblock(device, observer)? else { return Ok(None) };
    let sb = read_superblock(&*device)?;
    let uncounted = Uncounted::new();
    let (transactions, is_log_clean) = (0, false);
    let image = CheckedImage {
        device: device.clone(),
        sb,
        transactions,
        is_log_clean,
        head: None,
        uncounted,
    };
    if options.norecovery {
        let head = log_head(&*image.device, &image.sb);
        return Ok(Some(CheckedImage { head, ..image }));
    }
    match replayed(device, &image.sb) {
        Ok(Replayed::Clean(end)) => {
            check_uuid_of_log(&image, &end, observer);
            let head = head_of(&end);
            Ok(Some(CheckedImage { is_log_clean: true, head, ..image }))
        }
        Ok(Replayed::Dirty(replayed)) => Ok(Some(*replayed)),
        Err(Error::Corrupt(damage)) => {
            observer.found(Finding::of_damage(codes::LOG, &damage));
            Ok(Some(image))
        }
        Err(Error::Unsupported(unsupported)) => Err(Error::Unsupported(unsupported)),
        Err(error) => {
            observer.found(Finding::new(codes::LOG).detail(error.to_string()));
            Ok(Some(image))
        }
    }
}

/// The state of a log.
enum Replayed {
    /// The log is empty.
    Clean(LogEnd),
    /// The image with the log replayed in memory.
    Dirty(Box<CheckedImage>),
}

/// Checks that a log belongs to the image: kernels refuse one with another UUID. In version 5, other structures contain
/// the UUID, too, and are compared with it.
fn check_uuid_of_log(image: &CheckedImage, end: &LogEnd, observer: &dyn Observer) {
    let uuid = end.last.and_then(|last| uuid_of_log(&*image.device, &image.sb, last.lsn));
    let is_right = |uuid: &[u8; 16]| *uuid == image.sb.raw.uuid || *uuid == [0; 16];
    if !image.sb.features.crc() && uuid.is_some_and(|uuid| !is_right(&uuid)) {
        let finding = Finding::new(codes::SUPERBLOCK_FIELD).in_group(0_u64).field("sb_uuid");
        observer.found(finding.detail("the log contains another UUID"));
    }
}

/// Replays a log in memory, if that is necessary.
fn replayed(device: Arc<dyn BlockDevice>, sb: &Superblock) -> Result<Replayed> {
    if let Some(end) = log_end(&*device, sb)?.filter(|end| end.is_clean) {
        return Ok(Replayed::Clean(end));
    }
    if let Some(reason) = sb.unmaintained() {
        return Err(Error::unsupported(
            format!("replaying the log of an image that cannot be written ({reason})"),
            Advice::before(
                "mount and unmount it once, or check it without its log: ",
                Hint::Use(Setting::NORECOVERY),
            ),
        ));
    }
    let announced = Announced::of(&device, sb)?;
    let overlay: Arc<dyn BlockDevice> = Arc::new(OverlayDevice::new(device));
    let options = OpenOptions { cache_bytes: REPLAY_CACHE_BYTES, ..OpenOptions::default() };
    let fs = XfsCore::open_uncounted(overlay.clone(), &options)?;
    fs.engine.checkpoint()?;
    fs.flush_superblock()?;
    fs.engine.empty_log()?;
    let transactions = fs.recovered.transactions;
    drop(fs);
    let sb = read_superblock(&*overlay)?;
    let uncounted = announced.uncounted(&*overlay, &sb);
    let (is_log_clean, head) = (false, log_head(&*overlay, &sb));
    let image = CheckedImage { device: overlay, sb, transactions, is_log_clean, head, uncounted };
    Ok(Replayed::Dirty(Box::new(image)))
}

/// Returns the head of the log, if it is clean: later writes get higher LSNs.
pub(crate) fn log_head(device: &dyn BlockDevice, sb: &Superblock) -> Option<u64> {
    head_of(&log_end(device, sb).ok().flatten()?)
}

fn head_of(end: &LogEnd) -> Option<u64> {
    (end.is_clean && end.last.is_some()).then(|| end.head_lsn().to_raw())
}

/// Returns the device with a usable superblock in place of a damaged one.
fn with_superblock(
    device: Arc<dyn BlockDevice>,
    observer: &dyn Observer,
) -> Result<Option<Arc<dyn BlockDevice>>> {
    let damage = match read_superblock(&*device) {
        Ok(_) => return Ok(Some(device)),
        Err(Error::Corrupt(damage)) => damage,
        Err(Error::Device(error)) => {
            observer.found(Finding::new(codes::SUPERBLOCK).detail(error.to_string()));
            return Ok(None);
        }
        Err(error) => match repaired(&device)? {
            // The only known unsupported feature whose images can be checked nevertheless.
            Some((view, raw)) if needs_repair(&raw) => {
                observer.found(Finding::new(codes::NEEDS_REPAIR).field("sb_features_incompat"));
                return Ok(Some(view));
            }
            _ => return Err(error),
        },
    };
    let code = if damage.is_checksum() { codes::SUPERBLOCK_CHECKSUM } else { codes::SUPERBLOCK };
    observer.found(Finding::of_damage(code, &damage).in_group(0_u64));
    let progress = |done, total| {
        observer.progress(Phase::Superblock, done, total);
        !observer.is_cancelled()
    };
    if let Some(copy) = Copy::find_anywhere(&*device, &progress)
        && let Some(view) = copy.fitted_in_place(device.clone())?
    {
        return Ok(Some(view));
    }
    if let Some((view, _)) = repaired(&device)? {
        return Ok(Some(view));
    }
    observer.found(Finding::new(codes::SUPERBLOCK).detail("no copy of it is valid either"));
    Ok(None)
}

fn needs_repair(raw: &RawSuperblock) -> bool {
    raw.features().incompat.contains(Incompat::NEEDSREPAIR)
}

/// Returns a view of the device with a corrected superblock, if that is usable, and the superblock of the image. The
/// corrected one is marked finished, needs no repair, is cut to the size of the image and has a valid checksum.
fn repaired(
    device: &Arc<dyn BlockDevice>,
) -> Result<Option<(Arc<dyn BlockDevice>, RawSuperblock)>> {
    let mut sector = vec![0; SECTOR_SIZE_MAX.min(device.len()) as usize];
    device.read_at(0, &mut sector).map_err(Error::Device)?;
    let Ok((found, _)) = RawSuperblock::read_from_prefix(&sector) else { return Ok(None) };
    let mut raw = found.clone();
    raw.inprogress = 0;
    let incompat = raw.features_incompat.get() & !Incompat::NEEDSREPAIR.bits();
    raw.features_incompat = incompat.into();
    let raw = cut::fitted(&raw, device.len()).unwrap_or(raw);
    sector[..SUPERBLOCK_SIZE].copy_from_slice(raw.as_bytes());
    let size = usize::from(raw.sectsize.get());
    if size < SUPERBLOCK_SIZE || size > sector.len() {
        return Ok(None);
    }
    if raw.features().crc() {
        checksum::seal(&mut sector[..size], CRC_OFFSET);
    }
    if Superblock::parse(&sector, device.len()).is_err() {
        return Ok(None);
    }
    let view = OverlayDevice::new(device.clone());
    view.write_at(0, &sector[..size]).map_err(Error::Device)?;
    Ok(Some((Arc::new(view), found)))
}

/// Checks the remaining fields of the superblock, and its copies.
pub(super) fn check(ctx: &Context<'_>) {
    check_roots(ctx);
    check_log_bits(ctx);
    let size = ctx.geometry.sector_size();
    let mut sector = vec![0; size];
    for ag in ctx.geometry.ags() {
        if ctx.read_bytes(ctx.ag_byte(ag), &mut sector) {
            check_sector(ctx, ag, &sector);
        }
    }
}

/// Checks the inodes that mkfs allocates first. Those of a realtime device exist even without one, unless there is a
/// metadata directory.
fn check_roots(ctx: &Context<'_>) {
    let raw = &ctx.sb.raw;
    let root = raw.rootino.get();
    let has_metadir = ctx.geometry.features.incompat(Incompat::METADIR);
    let all: &[_] = match has_metadir {
        true => &[("sb_rootino", raw.rootino, 0), ("sb_metadirino", raw.metadirino, 1)],
        false => &[
            ("sb_rootino", raw.rootino, 0),
            ("sb_rbmino", raw.rbmino, 1),
            ("sb_rsumino", raw.rsumino, 2),
        ],
    };
    for (field, ino, nth) in all {
        let is_there = ctx.geometry.split_ino(vfs::Ino(ino.get())).is_some();
        if !is_there || ino.get() != root.wrapping_add(*nth) {
            let finding = Finding::new(codes::SUPERBLOCK_FIELD).in_group(0_u64).field(field);
            let expected = match has_metadir {
                true => "an inode; the root of the metadata directory must follow the root",
                false => "an inode; realtime inodes must follow the root",
            };
            ctx.found(finding.mismatch(expected, ino));
        }
    }
}

/// Checks the log incompat bits. Kernels clear them when the log is empty, except unknown ones.
fn check_log_bits(ctx: &Context<'_>) {
    let bits = ctx.sb.raw.features_log_incompat.get();
    let is_clean = || log_is_clean(&*ctx.device, &ctx.sb).unwrap_or(false);
    if ctx.geometry.features.crc() && bits != 0 && is_clean() {
        let finding = Finding::new(codes::SUPERBLOCK_LOG_BITS).in_group(0_u64);
        ctx.found(finding.field("sb_features_log_incompat").mismatch("0", format!("{bits:#x}")));
    }
}

/// Returns the fields in which copies must agree with the first superblock, with their names.
pub(crate) fn numbers(raw: &RawSuperblock) -> Vec<(&'static str, u64)> {
    // Kernels may set these after mkfs, only in the first superblock.
    let bits = Version::ATTR | Version::QUOTA | Version::NLINK;
    let mut all = vec![
        ("sb_blocksize", raw.blocksize.get().into()),
        ("sb_dblocks", raw.dblocks.get()),
        ("sb_rblocks", raw.rblocks.get()),
        ("sb_rextents", raw.rextents.get()),
        ("sb_logstart", raw.logstart.get()),
        ("sb_rextsize", raw.rextsize.get().into()),
        ("sb_agblocks", raw.agblocks.get().into()),
        ("sb_agcount", raw.agcount.get().into()),
        ("sb_rbmblocks", raw.rbmblocks.get().into()),
        ("sb_logblocks", raw.logblocks.get().into()),
        ("sb_versionnum", (raw.versionnum.get() & !bits.bits()).into()),
        ("sb_sectsize", raw.sectsize.get().into()),
        ("sb_inodesize", raw.inodesize.get().into()),
        ("sb_inopblock", raw.inopblock.get().into()),
        ("sb_blocklog", raw.blocklog.into()),
        ("sb_sectlog", raw.sectlog.into()),
        ("sb_inodelog", raw.inodelog.into()),
        ("sb_inopblog", raw.inopblog.into()),
        ("sb_agblklog", raw.agblklog.into()),
        ("sb_rextslog", raw.rextslog.into()),
        ("sb_inoalignmt", raw.inoalignmt.get().into()),
        ("sb_dirblklog", raw.dirblklog.into()),
        ("sb_logsectlog", raw.logsectlog.into()),
        ("sb_logsectsize", raw.logsectsize.get().into()),
        ("sb_logsunit", raw.logsunit.get().into()),
    ];
    if raw.features().incompat(Incompat::METADIR) {
        all.extend([
            ("sb_rgcount", u64::from(raw.rgcount.get())),
            ("sb_rgextents", raw.rgextents.get().into()),
            ("sb_rgblklog", raw.rgblklog.into()),
        ]);
    }
    all
}

/// Returns the number of used bytes of a superblock. Without a metadata directory, its fields and those of realtime
/// groups are not used, and without META_UUID neither is the second UUID. Version 4 ends before the fields of version 5.
pub(crate) const fn in_use(features: &Features) -> usize {
    if !features.crc() {
        return offset_of!(RawSuperblock, features_compat);
    }
    if features.incompat(Incompat::ZONED) {
        return SUPERBLOCK_SIZE;
    }
    if features.incompat(Incompat::METADIR) {
        return offset_of!(RawSuperblock, pad);
    }
    match features.incompat(Incompat::META_UUID) {
        true => offset_of!(RawSuperblock, metadirino),
        false => offset_of!(RawSuperblock, meta_uuid),
    }
}

fn check_sector(ctx: &Context<'_>, ag: AgNumber, sector: &[u8]) {
    let finding = |code| Finding::new(code).in_group(ag.0);
    let Ok((copy, _)) = RawSuperblock::read_from_prefix(sector) else { return };
    let rest = &sector[in_use(&ctx.geometry.features)..];
    if rest.iter().any(|byte| *byte != 0) {
        ctx.found(finding(codes::SUPERBLOCK_REST));
    }
    if ag.0 == 0 {
        return check_alone(ctx, ag, &ctx.sb.raw);
    }
    if copy.magicnum.get() != MAGIC {
        let damage = Corruption::new("superblock", "wrong magic number");
        return ctx.found(Finding::of_damage(codes::SUPERBLOCK_COPY, &damage).in_group(ag.0));
    }
    if ctx.geometry.features.crc()
        && let Err(damage) = checksum::check("superblock", sector, CRC_OFFSET)
    {
        ctx.found(Finding::of_damage(codes::SUPERBLOCK_COPY, &damage).in_group(ag.0));
    }
    check_alone(ctx, ag, &copy);
    let raw = &ctx.sb.raw;
    let mut expected = numbers(raw);
    let mut found = numbers(&copy);
    if ctx.geometry.features.crc() {
        let bits = |raw: &RawSuperblock| {
            let repaired = raw.features_incompat.get() & !Incompat::NEEDSREPAIR.bits();
            [
                ("sb_features2", raw.features2.get().into()),
                ("sb_features_compat", raw.features_compat.get().into()),
                ("sb_features_ro_compat", u64::from(raw.features_ro_compat.get())),
                ("sb_features_incompat", repaired.into()),
                ("sb_spino_align", raw.spino_align.get().into()),
            ]
        };
        expected.extend(bits(raw));
        found.extend(bits(&copy));
    }
    for ((field, expected), (_, found)) in expected.into_iter().zip(found) {
        if expected != found {
            let finding = finding(codes::SUPERBLOCK_COPY).field(field);
            ctx.found(finding.mismatch(expected, found));
        }
    }
    check_copy_quota(ctx, ag, &copy);
    // Set only in the first superblock, while the log has such items.
    let (own, log_bits) = (raw.features_log_incompat.get(), copy.features_log_incompat.get());
    if ctx.geometry.features.crc() && log_bits != 0 && log_bits != own {
        let finding = finding(codes::SUPERBLOCK_COPY).field("sb_features_log_incompat");
        ctx.found(finding.mismatch(own, log_bits));
    }
    if raw.uuid != copy.uuid {
        ctx.found(finding(codes::SUPERBLOCK_COPY).field("sb_uuid"));
    }
    if ctx.geometry.features.incompat(Incompat::META_UUID) && raw.meta_uuid != copy.meta_uuid {
        ctx.found(finding(codes::SUPERBLOCK_COPY).field("sb_meta_uuid"));
    }
}

/// Kernels store the quota files only in the first superblock. Growing copies it, and clears the in-progress flag left
/// by mkfs.
fn check_copy_quota(ctx: &Context<'_>, ag: AgNumber, copy: &RawSuperblock) {
    if copy.inprogress == 0 || ctx.geometry.features.incompat(Incompat::METADIR) {
        return;
    }
    let inos = [
        ("sb_uquotino", copy.uquotino.get()),
        ("sb_gquotino", copy.gquotino.get()),
        ("sb_pquotino", if copy.features().crc() { copy.pquotino.get() } else { 0 }),
    ];
    for (field, found) in inos.into_iter().filter(|(_, ino)| ![0, u64::MAX].contains(ino)) {
        let finding = Finding::new(codes::SUPERBLOCK_COPY).in_group(ag.0).field(field);
        ctx.found(finding.mismatch("none in a copy", found));
    }
}
