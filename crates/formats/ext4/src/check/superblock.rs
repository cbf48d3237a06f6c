//! The superblock, its backups, and the replay of the journal before the check.

use std::sync::Arc;

use disk::{BlockDevice, OverlayDevice};
use vfs::check::{Finding, Observer, Options};
use vfs::{Error, Result};
use zerocopy::{FromBytes, IntoBytes};

use super::codes::{
    JOURNAL_REPLAY, MMP, SUPERBLOCK, SUPERBLOCK_BACKUP, SUPERBLOCK_FIELD, SUPERBLOCK_TIME,
};
use super::context::Context;
use crate::Ext4;
use crate::format::address::{Block, Group};
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::inode::{GOOD_OLD_INODE_SIZE, Inode};
use crate::format::mmp::RawMmp;
use crate::format::superblock::{self, FIRST_INO_REV0, RawSuperblock, SUPERBLOCK_SIZE, Superblock};
use crate::fs::OpenOptions;
use crate::log;
use crate::open::superblock_candidates;
use crate::open::superblock_copy::{Copy, SuperblockPlace};
use crate::params::read_superblock;

/// The image in the state to check.
pub(super) struct Start {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) sb: Superblock,
    pub(super) transactions_replayed: u64,
}

/// Maximum time in the future, in seconds: clocks differ.
const TIME_SLACK: i64 = 24 * 3600;

/// Maximum `s_def_hash_version`: TEA of unsigned bytes. SipHash is only for directories with their own key.
const HASH_VERSION_MAX: u8 = 5;

/// `s_encoding` of UTF-8, the only defined one.
pub(crate) const ENCODING_UTF8: u16 = 1;

/// Features that kernels enable on mounted file systems, so backups may lack them.
const COMPAT_LATER: Compat = Compat::EXT_ATTR;
const INCOMPAT_LATER: Incompat = Incompat::RECOVER.union(Incompat::EXTENTS);
const RO_COMPAT_LATER: RoCompat =
    RoCompat::LARGE_FILE.union(RoCompat::DIR_NLINK).union(RoCompat::ORPHAN_PRESENT);

/// Reads the superblock, and replays the journal in memory. Returns `None` if there is no superblock.
pub(super) fn begin(
    device: Arc<dyn BlockDevice>,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Option<Start>> {
    let Some((device, sb)) = find(device, observer)? else { return Ok(None) };
    if !sb.features.incompat(Incompat::RECOVER) || options.norecovery {
        return Ok(Some(Start { device, sb, transactions_replayed: 0 }));
    }
    match replay(&device) {
        Ok(start) => Ok(Some(start)),
        Err(error @ Error::Unsupported(_)) => Err(error),
        Err(error) => {
            let finding = match &error {
                Error::Corrupt(damage) => Finding::of_damage(JOURNAL_REPLAY, damage),
                other => Finding::new(JOURNAL_REPLAY).detail(other.to_string()),
            };
            observer.found(finding);
            Ok(Some(Start { device, sb, transactions_replayed: 0 }))
        }
    }
}

/// Returns a view of the image with the specified superblock copy instead of the primary one.
pub(super) fn by_copy(
    device: Arc<dyn BlockDevice>,
    place: SuperblockPlace,
    observer: &dyn Observer,
) -> Result<Arc<dyn BlockDevice>> {
    let copy = Copy::named(&*device, place)?;
    if let Err(Error::Corrupt(damage)) = read_superblock(&*device) {
        observer.found(Finding::of_damage(SUPERBLOCK, &damage).detail(copy.remark(&damage)));
    }
    Ok(copy.in_place(device)?.0)
}

/// Returns the superblock, or a view with a backup instead of a damaged one.
fn find(
    device: Arc<dyn BlockDevice>,
    observer: &dyn Observer,
) -> Result<Option<(Arc<dyn BlockDevice>, Superblock)>> {
    let error = match read_superblock(&*device) {
        Ok(sb) => return Ok(Some((device, sb))),
        Err(error @ Error::Unsupported(_)) => return Err(error),
        Err(error) => error,
    };
    let finding = match &error {
        Error::Corrupt(damage) => Finding::of_damage(SUPERBLOCK, damage),
        other => Finding::new(SUPERBLOCK).detail(other.to_string()),
    };
    let Error::Corrupt(damage) = &error else {
        observer.found(finding);
        return Ok(None);
    };
    if let Some(copy) = Copy::find(&*device) {
        observer.found(finding.detail(copy.remark(damage)));
        return copy.in_place(device).map(Some);
    }
    let Some((raw, _)) = superblock_candidates::repaired(&*device) else {
        observer.found(finding);
        return Ok(None);
    };
    observer.found(finding.detail(format!("{damage}; its other fields match the image")));
    let view: Arc<dyn BlockDevice> = Arc::new(OverlayDevice::new(device));
    view.write_at(superblock::SUPERBLOCK_OFFSET, raw.as_bytes()).map_err(Error::Device)?;
    let sb = read_superblock(&*view)?;
    Ok(Some((view, sb)))
}

/// Replays the journal in memory.
fn replay(device: &Arc<dyn BlockDevice>) -> Result<Start> {
    let overlay: Arc<dyn BlockDevice> = Arc::new(OverlayDevice::new(device.clone()));
    let report = log::recover(&*overlay)?;
    let transactions_replayed = u64::from(report.transactions);
    if report.fast_commits.is_empty() {
        let sb = read_superblock(&*overlay)?;
        return Ok(Start { device: overlay, sb, transactions_replayed });
    }
    // Fast commits are applied by operations, so the file system must be opened.
    let overlay: Arc<dyn BlockDevice> = Arc::new(OverlayDevice::new(device.clone()));
    Ext4::open_writable(overlay.clone(), &OpenOptions::default())?.close()?;
    let sb = read_superblock(&*overlay)?;
    Ok(Start { device: overlay, sb, transactions_replayed })
}

impl Context<'_> {
    /// Checks the superblock's fields outside the geometry, and its backups.
    pub(super) fn check_superblock(&self) {
        self.check_fields();
        self.check_times();
        self.check_mmp();
        for group in self.geometry().groups().skip(1) {
            if let Some(block) = self.geometry().superblock_of(group) {
                self.check_backup(group, block);
            }
        }
    }

    fn field(&self, field: &'static str, expected: impl ToString, found: impl ToString) {
        let finding = Finding::new(SUPERBLOCK_FIELD).field(field);
        self.tell(finding.mismatch(expected.to_string(), found.to_string()));
    }

    fn check_fields(&self) {
        let (sb, raw) = (&self.params.sb, &self.params.sb.raw);
        if raw.reserved_blocks() > sb.blocks_count / 2 {
            let expected = format!("at most {}", sb.blocks_count / 2);
            self.field("r_blocks_count", expected, raw.reserved_blocks());
        }
        if sb.first_ino > FIRST_INO_REV0 {
            // lost+found in every file system made by mke2fs.
            let first = self.slot(FIRST_INO_REV0).map(|slot| Inode::from_slot(&slot));
            if first.is_some_and(|inode| inode.is_dir() && inode.links_count() > 0) {
                self.field("first_ino", FIRST_INO_REV0, sb.first_ino);
            }
        }
        let has_groups_512 = sb.features.ro_compat(RoCompat::BIGALLOC)
            || raw.clusters_per_group == raw.blocks_per_group;
        if !has_groups_512 {
            self.field("clusters_per_group", raw.blocks_per_group, raw.clusters_per_group);
        }
        if !sb.features.ro_compat(RoCompat::BIGALLOC) && raw.log_cluster_size != raw.log_block_size
        {
            self.field("log_cluster_size", raw.log_block_size, raw.log_cluster_size);
        }
        if raw.reserved_gdt_blocks != 0 && !sb.features.compat(Compat::RESIZE_INODE) {
            self.field("reserved_gdt_blocks", 0, raw.reserved_gdt_blocks);
        }
        // e2fsck refuses it without flex_bg, too.
        if raw.log_groups_per_flex >= 32 {
            self.field("log_groups_per_flex", "below 32", raw.log_groups_per_flex);
        }
        self.check_inode_fields();
        if sb.features.compat(Compat::SPARSE_SUPER2) {
            for group in raw.backup_bgs.iter().filter(|g| g.get() >= sb.groups_count) {
                self.field("backup_bgs", format!("below {}", sb.groups_count), group);
            }
        }
        if raw.rev_level == 0 && sb.features.has_any() {
            self.field("rev_level", "1, because there are features", 0);
        }
        if sb.features.compat(Compat::RESIZE_INODE) && sb.features.incompat(Incompat::META_BG) {
            self.field("feature_compat", "resize_inode or meta_bg", "both");
        }
        if sb.features.metadata_csum() && sb.features.ro_compat(RoCompat::GDT_CSUM) {
            self.field("feature_ro_compat", "metadata_csum or uninit_bg", "both");
        }
    }

    /// Checks fields that kernels verify at a mount but that reading does not need.
    fn check_inode_fields(&self) {
        let (sb, raw) = (&self.params.sb, &self.params.sb.raw);
        let most = sb.inode_size.saturating_sub(GOOD_OLD_INODE_SIZE as u16);
        if sb.features.ro_compat(RoCompat::EXTRA_ISIZE) && most > 0 {
            for (field, found) in [
                ("want_extra_isize", raw.want_extra_isize.get()),
                ("min_extra_isize", raw.min_extra_isize.get()),
            ] {
                if found > most {
                    self.field(field, format!("at most {most}"), found);
                }
            }
        }
        if raw.def_hash_version > HASH_VERSION_MAX {
            self.field(
                "def_hash_version",
                format!("at most {HASH_VERSION_MAX}"),
                raw.def_hash_version,
            );
        }
        if !raw.mount_opts.contains(&0) {
            self.field("mount_opts", "a string that ends with a zero byte", "none");
        }
        if sb.features.ro_compat(RoCompat::BIGALLOC) && sb.first_data_block != 0 {
            self.field("first_data_block", "0 in a file system of clusters", sb.first_data_block);
        }
        if sb.features.incompat(Incompat::CASEFOLD) && raw.encoding != ENCODING_UTF8 {
            self.field("encoding", ENCODING_UTF8, raw.encoding);
        }
        if raw.journal_inum != 0 && raw.journal_dev != 0 {
            self.field("journal_dev", "0 with an internal journal", raw.journal_dev);
        }
    }

    fn check_times(&self) {
        let raw = &self.params.sb.raw;
        // Without a clock, no time can be checked.
        let Some(vfs::Timestamp { sec: now, .. }) = vfs::clock::now() else { return };
        let times = [
            ("mtime", raw.mtime.get(), raw.mtime_hi),
            ("wtime", raw.wtime.get(), raw.wtime_hi),
            ("lastcheck", raw.lastcheck.get(), raw.lastcheck_hi),
        ];
        for (field, low, high) in times {
            let time = i64::from(high) << 32 | i64::from(low);
            if time > now + TIME_SLACK {
                let finding = Finding::new(SUPERBLOCK_TIME).field(field);
                self.tell(finding.mismatch(format!("at most {now}"), time));
            }
        }
    }

    /// Checks the MMP block. Its sequence number may be that of a host that uses the file system.
    fn check_mmp(&self) {
        let (sb, geometry) = (&self.params.sb, self.geometry());
        if !sb.features.incompat(Incompat::MMP) {
            return;
        }
        let place = Block(sb.raw.mmp_block.get());
        let tell = |detail: &str| {
            self.tell(Finding::new(MMP).at_block(place.0).detail(detail));
        };
        if !geometry.contains(place, 1) {
            return tell("it is outside the file system");
        }
        self.claims.take_system(place, 1);
        let Some(bytes) = self.block(place) else { return };
        if RawMmp::parse(&bytes, None).is_err() {
            tell("its magic number is wrong");
        } else if self.params.checksums && RawMmp::parse(&bytes, Some(sb.checksum_seed)).is_err() {
            tell("its checksum does not match");
        }
    }

    fn check_backup(&self, group: Group, block: Block) {
        let Some(bytes) = self.block(block) else { return };
        let bytes = &bytes[..SUPERBLOCK_SIZE];
        let tell = |finding: Finding| {
            self.tell(finding.in_group(group.0).at_block(block.0));
        };
        if let Err(damage) = superblock::verify(bytes) {
            return tell(Finding::of_damage(SUPERBLOCK_BACKUP, &damage));
        }
        let Ok(raw) = RawSuperblock::read_from_bytes(bytes) else { return };
        let primary = &self.params.sb.raw;
        let features = |raw: &RawSuperblock| {
            let features = raw.features();
            [
                features.compat.difference(COMPAT_LATER).bits(),
                features.incompat.difference(INCOMPAT_LATER).bits(),
                features.ro_compat.difference(RO_COMPAT_LATER).bits(),
            ]
        };
        let sizes = |raw: &RawSuperblock| {
            [
                ("inodes_count", raw.inodes_count.get()),
                ("blocks_count_lo", raw.blocks_count_lo.get()),
                ("blocks_count_hi", raw.blocks_count_hi.get()),
                ("first_data_block", raw.first_data_block.get()),
                ("log_block_size", raw.log_block_size.get()),
                ("blocks_per_group", raw.blocks_per_group.get()),
                ("inodes_per_group", raw.inodes_per_group.get()),
                ("inode_size", raw.inode_size.get().into()),
                ("desc_size", raw.desc_size.get().into()),
            ]
        };
        // Revision 0 does not have the field, and not every mke2fs writes it.
        let is_unnumbered = raw.rev_level == 0 && raw.block_group_nr == 0;
        if !is_unnumbered && !superblock::is_backup_number(raw.block_group_nr.get(), group) {
            let finding = Finding::new(SUPERBLOCK_BACKUP).field("block_group_nr");
            tell(finding.mismatch(superblock::backup_number(group), raw.block_group_nr));
        }
        for ((field, found), (_, expected)) in sizes(&raw).into_iter().zip(sizes(primary)) {
            if found != expected {
                tell(Finding::new(SUPERBLOCK_BACKUP).field(field).mismatch(expected, found));
            }
        }
        if raw.uuid != primary.uuid {
            tell(Finding::new(SUPERBLOCK_BACKUP).field("uuid"));
        }
        if features(&raw) != features(primary) {
            let show = |raw| format!("{:x?}", features(raw));
            let finding = Finding::new(SUPERBLOCK_BACKUP).field("features");
            tell(finding.mismatch(show(primary), show(&raw)));
        }
    }
}
