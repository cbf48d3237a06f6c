//! Repairs fields of the superblock, its backups, and the MMP block.

use operations::repair::Action;
use vfs::Result;
use vfs::check::Finding;
use zerocopy::IntoBytes;

use super::RepairJob;
use super::image::{StagedImage, by_group, now, step};
use super::system_files::free_block;
use crate::check::{ENCODING_UTF8, find_in_use};
use crate::format::address::{Block, Group};
use crate::format::features::{Compat, Features, Incompat, RoCompat};
use crate::format::inode::EXTRA_ISIZE;
use crate::format::mmp::{self, RawMmp};
use crate::format::superblock::{
    FIRST_INO_REV0, INODE_SIZE_REV0, RawSuperblock, STATE_VALID, backup_number, split,
};
use crate::log::JOURNAL_INO;
use crate::open::superblock_copy::Copy;

/// Inode of the blocks reserved for descriptors.
const RESIZE_INO: u32 = 7;
/// Name of the compatible features in findings.
const COMPAT: &str = "feature_compat";
/// Default `s_log_groups_per_flex` of mke2fs.
const LOG_GROUPS_PER_FLEX: u8 = 4;

/// `s_def_hash_version` of half MD4, the default of mke2fs.
const HALF_MD4: u8 = 1;

/// Repairs fields with invalid values.
pub(super) fn repair_fields(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    for finding in findings {
        let Some(image) = StagedImage::of(&job.staging) else { return Ok(()) };
        let Some(field) = finding.place.field else { continue };
        step(&job.staging, || {
            let copy = Copy::find(&*job.staging).map(|copy| copy.raw().clone());
            let mut what = String::new();
            let facts = Facts::of(&image)?;
            image.edit_superblock(|raw| what = repair_field(raw, field, &facts, copy.as_ref()))?;
            if field == COMPAT {
                image.write_slot(
                    RESIZE_INO,
                    vec![0; usize::from(image.params.geometry.inode_size)],
                )?;
            }
            Ok(vec![Action::about(finding, what)])
        })?;
    }
    Ok(())
}

/// Facts about the image that determine fields.
struct Facts {
    blocks_count: u64,
    groups_count: u32,
    /// True if inode 7 has the form of an inode with blocks reserved for descriptors.
    has_resize_inode: bool,
    /// True if inode 8 is a journal.
    has_journal: bool,
}

impl Facts {
    fn of(image: &StagedImage<'_>) -> std::io::Result<Self> {
        let sb = &image.params.sb;
        let resize = image.inode(RESIZE_INO)?;
        let mut with_journal = sb.clone();
        with_journal.features.compat.insert(Compat::HAS_JOURNAL);
        with_journal.raw.journal_inum = JOURNAL_INO.into();
        let journal = crate::log::JournalMap::read(image.staging, &with_journal);
        Ok(Self {
            blocks_count: sb.blocks_count,
            groups_count: sb.groups_count,
            has_resize_inode: resize.is_some_and(|inode| {
                let double = &inode.i_block()[13 * 4..14 * 4];
                inode.links_count() > 0 && double.iter().any(|&byte| byte != 0)
            }),
            has_journal: matches!(journal, Ok(Some(map)) if map.blocks() > 0),
        })
    }
}

fn set_features(raw: &mut RawSuperblock, change: impl FnOnce(&mut Features)) {
    let mut features = raw.features();
    change(&mut features);
    raw.set_features(&features);
}

/// Returns the report sentence for a field that is set to its default.
fn usual(field: &str) -> String {
    format!("The superblock field {field} is set to its default value.")
}

/// Repairs one field. Returns the sentence for the report.
fn repair_field(
    raw: &mut RawSuperblock,
    field: &str,
    facts: &Facts,
    copy: Option<&RawSuperblock>,
) -> String {
    if set_usual(raw, field, facts, copy) {
        return format!("The superblock field {field} is set to its default value.");
    }
    match field {
        "mount_opts" => {
            raw.mount_opts = [0; 64];
            "The mount options are cleared.".into()
        }
        "reserved_gdt_blocks" => {
            set_features(raw, |features| features.compat.insert(Compat::RESIZE_INODE));
            "The feature resize_inode is turned on, because a resize inode exists.".into()
        }
        "rev_level" => {
            raw.rev_level = 1.into();
            raw.first_ino = FIRST_INO_REV0.into();
            raw.inode_size = INODE_SIZE_REV0.into();
            "The superblock is set to revision 1, which supports features.".into()
        }
        _ => repair_feature(raw, field, facts),
    }
}

/// Sets a field that has a default to it. Returns `false` for other fields.
fn set_usual(
    raw: &mut RawSuperblock,
    field: &str,
    facts: &Facts,
    copy: Option<&RawSuperblock>,
) -> bool {
    match field {
        "r_blocks_count" => {
            let reserved = facts.blocks_count / 20;
            (raw.r_blocks_count_lo, raw.r_blocks_count_hi) = split(reserved);
        }
        "clusters_per_group" => raw.clusters_per_group = raw.blocks_per_group,
        "log_cluster_size" => raw.log_cluster_size = raw.log_block_size,
        "want_extra_isize" => raw.want_extra_isize = EXTRA_ISIZE.into(),
        "min_extra_isize" => raw.min_extra_isize = EXTRA_ISIZE.into(),
        "def_hash_version" => raw.def_hash_version = HALF_MD4,
        "first_ino" => raw.first_ino = 11.into(),
        "reserved_gdt_blocks" if !facts.has_resize_inode => raw.reserved_gdt_blocks = 0.into(),
        "log_groups_per_flex" => {
            let from_copy = copy.map(|copy| copy.log_groups_per_flex).filter(|log| *log < 32);
            let is_used = raw.features().incompat(Incompat::FLEX_BG);
            let usual = if is_used { LOG_GROUPS_PER_FLEX } else { 0 };
            raw.log_groups_per_flex = from_copy.unwrap_or(usual);
        }
        "backup_bgs" => {
            for group in &mut raw.backup_bgs {
                if group.get() >= facts.groups_count {
                    *group = 0.into();
                }
            }
        }
        _ => return false,
    }
    true
}

fn has_both(raw: &RawSuperblock, compat: Compat, incompat: Incompat) -> bool {
    let features = raw.features();
    features.compat.contains(compat) && features.incompat.contains(incompat)
}

/// Repairs a field about features or the position of the journal. Returns the sentence for the report.
fn repair_feature(raw: &mut RawSuperblock, field: &str, facts: &Facts) -> String {
    match field {
        COMPAT if has_both(raw, Compat::RESIZE_INODE, Incompat::META_BG) => {
            set_features(raw, |features| features.compat.remove(Compat::RESIZE_INODE));
            raw.reserved_gdt_blocks = 0.into();
            "The feature resize_inode is turned off, because it conflicts with meta_bg.".into()
        }
        "feature_ro_compat" => {
            set_features(raw, |features| features.ro_compat.remove(RoCompat::GDT_CSUM));
            "The feature uninit_bg is turned off, because metadata_csum includes it.".into()
        }
        "first_data_block" => {
            // Such clusters are single blocks.
            set_features(raw, |features| features.ro_compat.remove(RoCompat::BIGALLOC));
            "The feature bigalloc is turned off, because the cluster size equals the block size."
                .into()
        }
        "encoding" => {
            raw.encoding = ENCODING_UTF8.into();
            usual(field)
        }
        COMPAT => {
            set_features(raw, |features| features.compat.remove(Compat::FAST_COMMIT));
            "The feature fast_commit is turned off, because the journal is too small.".into()
        }
        "journal_uuid" => {
            raw.journal_uuid = [0; 16];
            "The journal UUID is cleared, because the journal is not on another device.".into()
        }
        "journal_inum" | "feature_incompat" if facts.has_journal => {
            raw.journal_inum = JOURNAL_INO.into();
            set_features(raw, |features| features.compat.insert(Compat::HAS_JOURNAL));
            "The feature has_journal is turned on, because a journal exists.".into()
        }
        "journal_inum" => {
            raw.journal_inum = 0.into();
            usual(field)
        }
        "journal_dev" => {
            raw.journal_dev = 0.into();
            usual(field)
        }
        "feature_incompat" => {
            set_features(raw, |features| features.incompat.remove(Incompat::RECOVER));
            "The needs_recovery flag is cleared, because there is no journal.".into()
        }
        _ => String::new(),
    }
}

/// Sets times in the future to the current time.
pub(super) fn repair_times(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(image) = StagedImage::of(&job.staging) else { return Ok(()) };
    step(&job.staging, || {
        let has = |field: &str| findings.iter().any(|f| f.place.field == Some(field));
        image.edit_superblock(|raw| {
            let times = [
                ("mtime", &mut raw.mtime, &mut raw.mtime_hi),
                ("wtime", &mut raw.wtime, &mut raw.wtime_hi),
                ("lastcheck", &mut raw.lastcheck, &mut raw.lastcheck_hi),
            ];
            for (field, low, high) in times {
                if has(field) {
                    (*low, *high) = (now().into(), 0);
                }
            }
        })?;
        let what = |f: &&Finding| Action::about(f, "The time is set to the current time.");
        Ok(findings.iter().map(what).collect())
    })
}

/// Enables features that are in use.
pub(super) fn repair_features(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    const LARGE: &str = "feature_ro_compat";
    const ATTRIBUTES: &str = COMPAT;
    let has = |field: &str| findings.iter().any(|f| f.place.field == Some(field));
    let Some(image) = StagedImage::of(&job.staging) else { return Ok(()) };
    step(&job.staging, || {
        image.edit_superblock(|raw| {
            set_features(raw, |features| {
                features.ro_compat.set(
                    RoCompat::LARGE_FILE,
                    has(LARGE) || features.ro_compat(RoCompat::LARGE_FILE),
                );
                features
                    .compat
                    .set(Compat::EXT_ATTR, has(ATTRIBUTES) || features.compat(Compat::EXT_ATTR));
            });
        })?;
        let what = |f: &&Finding| {
            let name = f.detail.as_deref().unwrap_or_default();
            Action::about(f, format!("The feature {name} is turned on."))
        };
        Ok(findings.iter().map(what).collect())
    })
}

/// Rewrites backups of the superblock.
pub(super) fn repair_backups(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(image) = StagedImage::of(&job.staging) else { return Ok(()) };
    for (group, own) in by_group(findings) {
        let Some(block) = own.iter().find_map(|finding| finding.place.block) else { continue };
        step(&job.staging, || {
            let mut raw = image.params.sb.raw.clone();
            raw.block_group_nr = backup_number(Group(group as u32)).into();
            raw.state = (raw.state.get() & !STATE_VALID).into();
            set_features(&mut raw, |features| features.incompat.remove(Incompat::RECOVER));
            raw.seal();
            image.write(Block(block), raw.as_bytes())?;
            let what = format!("The backup superblock in group {group} is rewritten.");
            Ok(own.iter().map(|finding| Action::about(finding, what.clone())).collect())
        })?;
    }
    Ok(())
}

/// Rewrites the MMP block as for a file system that is not mounted.
pub(super) fn repair_mmp(job: &RepairJob, findings: &[&Finding]) -> Result<()> {
    let Some(image) = StagedImage::of(&job.staging) else { return Ok(()) };
    let place = mmp_place(job, &image)?;
    step(&job.staging, || {
        let Some(place) = place else {
            image.edit_superblock(|raw| {
                set_features(raw, |features| features.incompat.remove(Incompat::MMP));
                raw.mmp_block = 0.into();
            })?;
            let what = "The feature mmp is turned off, because there is no free block for the MMP \
                        block.";
            return Ok(findings.iter().map(|f| Action::about(f, what)).collect());
        };
        image.write(place, &mmp_block(&image))?;
        if image.params.sb.raw.mmp_block.get() != place.0 {
            image.edit_superblock(|raw| raw.mmp_block = place.0.into())?;
        }
        let what = "The MMP block is rewritten in the unmounted state.";
        Ok(findings.iter().map(|f| Action::about(f, what)).collect())
    })
}

pub(super) fn mmp_block(image: &StagedImage<'_>) -> Vec<u8> {
    let sb = &image.params.sb;
    let mut raw = RawMmp::clean(sb.raw.mmp_interval.get(), now().into());
    raw.seal(image.params.checksums.then_some(sb.checksum_seed));
    raw.as_bytes().to_vec()
}

/// Returns the position of the MMP block: where one is found, or where superblock or copy refer to, if that is not in
/// use; else a free block. A wrong block number may be that of any block.
fn mmp_place(job: &RepairJob, image: &StagedImage<'_>) -> Result<Option<Block>> {
    let geometry = &image.params.geometry;
    let told = Block(image.params.sb.raw.mmp_block.get());
    let copied = Copy::find(&*job.staging).map(|copy| Block(copy.raw().mmp_block.get()));
    let is_possible = |place: &Block| geometry.contains(*place, 1);
    let places: Vec<Block> = copied.into_iter().chain([told]).filter(is_possible).collect();
    let is_one = |place: &Block| {
        let bytes = image.block(*place);
        bytes.is_ok_and(|bytes| bytes.starts_with(&mmp::MAGIC.to_le_bytes()))
    };
    if let Some(place) = places.iter().find(|place| is_one(place)) {
        return Ok(Some(*place));
    }
    if !job.is_all_known {
        // Do not write where other data may be.
        return Ok(copied.filter(|copied| *copied == told && is_possible(copied)));
    }
    let found = find_in_use(job.staging.clone(), &job.options, |in_use| {
        let is_free = |place: &Block| {
            let is_used = in_use.clusters().contains(in_use.cluster_of(*place));
            // The check itself claims the block that the superblock names.
            in_use.is_alone(*place) && (*place == told || !is_used)
        };
        places.iter().copied().find(is_free).or_else(|| free_block(image, in_use))
    })?;
    Ok(found.flatten())
}
