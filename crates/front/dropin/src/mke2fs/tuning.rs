//! Settings of superblock and layout from configuration and arguments.

use diskwright::build::{FeatureChange, Tuning};

use super::args::{Args, errors_behaviour};
use super::extended::{self, Extended};
use super::values::{Values, has};
use crate::dumpe2fs::{DATA_MODES, MOUNT_OPTIONS};
use crate::failure::{Failure, STATUSES};
use crate::size::{self, Size};

/// Maximum number of blocks of an orphan file.
const ORPHAN_BLOCKS_MAX: u64 = 512;

/// Returns the settings, and remarks on those without effect.
pub(super) fn of(
    args: &Args,
    values: &Values<'_>,
    features: &[FeatureChange],
    block_size: u32,
) -> Result<(Tuning, Vec<String>), Failure> {
    let usual = Tuning::default();
    let extended = &args.extended;
    let errors = args.errors.map_or_else(|| values.by("errors", errors_behaviour), |e| Ok(Some(e)));
    let block = |size: Size| blocks(size, block_size);
    let orphans = |size| orphan_file(size, block_size);
    let strictness = values.by("encoding_flags", extended::strictness)?;
    let encoding = values.by("encoding", extended::encoding)?;
    let tuning = Tuning {
        errors: errors?.unwrap_or(usual.errors),
        mount_options: values.by("default_mntopts", mount_options)?.unwrap_or(usual.mount_options),
        hash_version: values.by("hash_alg", hash_version)?.unwrap_or(usual.hash_version),
        is_checked_periodically: values.switch("enable_periodic_fsck")?.unwrap_or(false),
        stride: extended.stride.unwrap_or(0),
        stripe_width: extended.stripe_width.unwrap_or(0),
        is_test: extended.is_test,
        encoding: extended.encoding.or(encoding).unwrap_or_default(),
        is_encoding_strict: extended.is_encoding_strict.or(strictness).unwrap_or(false),
        flex_groups: flex_groups(args, values, features)?,
        is_packed: packed(extended, values)?,
        backups: backups(extended, values)?,
        resize_blocks: extended.resize.map(block).transpose()?,
        cluster_bytes: cluster(args, values, features)?,
        group_blocks: args.group_blocks,
        journal_at: args
            .journal_at
            .map_or_else(|| values.by("journal_location", extended::place), |at| Ok(Some(at)))?,
        fast_commit_bytes: args.fast_commit_bytes,
        descriptor_bytes: extended.descriptor_bytes,
        orphan_file_bytes: extended.orphan_file.map(orphans).transpose()?,
        mmp_interval: extended.mmp_interval,
        // Set together with the quota files.
        has_project_quota: false,
    };
    Ok((tuning, without_effect(args, features)))
}

/// Returns remarks on settings whose feature is disabled, which the original accepts too.
fn without_effect(args: &Args, features: &[FeatureChange]) -> Vec<String> {
    let extended = &args.extended;
    let given = [
        ("-E num_backup_sb", extended.backups.is_some(), "sparse_super2"),
        ("-E packed_meta_blocks", extended.is_packed == Some(true), "flex_bg"),
        ("-E orphan_file_size", extended.orphan_file.is_some(), "orphan_file"),
        ("-E encoding_flags", extended.is_encoding_strict.is_some(), "casefold"),
        ("-E mmp_update_interval", extended.mmp_interval.is_some(), "mmp"),
        ("-E quotatype", !extended.quotas.is_empty(), "quota"),
        ("-J location", args.journal_at.is_some(), "has_journal"),
        ("-J fast_commit_size", args.fast_commit_bytes.is_some(), "fast_commit"),
    ];
    let idle = given.iter().filter(|(_, is_given, feature)| *is_given && !has(features, feature));
    idle.map(|(option, _, feature)| format!("{option} has no effect without the feature {feature}"))
        .collect()
}

fn packed(extended: &Extended, values: &Values<'_>) -> Result<bool, Failure> {
    let configured = values.switch("packed_meta_blocks")?;
    Ok(extended.is_packed.or(configured).unwrap_or(false))
}

fn backups(extended: &Extended, values: &Values<'_>) -> Result<u8, Failure> {
    let configured = values.by("num_backup_sb", extended::backups)?;
    Ok(extended.backups.or(configured).unwrap_or(Tuning::default().backups))
}

fn flex_groups(
    args: &Args,
    values: &Values<'_>,
    features: &[FeatureChange],
) -> Result<u32, Failure> {
    let has_flex = has(features, "flex_bg");
    match args.flex_groups {
        Some(_) if !has_flex => Err(STATUSES.usage("-G needs the feature flex_bg")),
        Some(groups) if !groups.is_power_of_two() => {
            Err(STATUSES.usage("-G: flex_bg size must be a power of 2"))
        }
        Some(groups) => Ok(groups),
        None => {
            let configured = values.by("flex_bg_size", power_of_two)?;
            Ok(configured.filter(|_| has_flex).unwrap_or(Tuning::default().flex_groups))
        }
    }
}

fn power_of_two(text: &str) -> Result<u32, String> {
    let parsed = text.parse().ok().filter(|groups: &u32| groups.is_power_of_two());
    parsed.ok_or_else(|| "it must be a power of 2".into())
}

/// Returns the cluster size in bytes. An explicit size requires the feature; a configured one is ignored without it.
fn cluster(
    args: &Args,
    values: &Values<'_>,
    features: &[FeatureChange],
) -> Result<Option<u64>, Failure> {
    if args.cluster_bytes.is_some() && !has(features, "bigalloc") {
        return Err(STATUSES.usage("-C: specifying a cluster size requires the bigalloc feature"));
    }
    let configured = values.by("cluster_size", size::bytes)?;
    Ok(args.cluster_bytes.or(configured.filter(|_| has(features, "bigalloc"))))
}

/// Returns the size of the orphan file in bytes.
fn orphan_file(size: Size, block_size: u32) -> Result<u64, Failure> {
    let blocks = blocks(size, block_size)?;
    if !(1..=ORPHAN_BLOCKS_MAX).contains(&blocks) {
        return Err(STATUSES.usage(format_args!(
            "-E orphan_file_size must be 1 to {ORPHAN_BLOCKS_MAX} blocks, not {blocks}: kernels do \
             not mount larger ones"
        )));
    }
    Ok(blocks * u64::from(block_size))
}

/// Returns a number of blocks.
fn blocks(size: Size, block_size: u32) -> Result<u64, Failure> {
    Ok(match size {
        Size::Units(blocks) | Size::Blocks(blocks) => blocks,
        Size::Bytes(bytes) => bytes / u64::from(block_size),
    })
}

fn hash_version(text: &str) -> Result<u8, String> {
    match text {
        "legacy" => Ok(0),
        "half_md4" => Ok(1),
        "tea" => Ok(2),
        _ => Err("write legacy, half_md4 or tea".into()),
    }
}

/// Parses a list of mount options; ^ disables one.
fn mount_options(list: &str) -> Result<u32, String> {
    let mut options = 0;
    for word in list.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty())
    {
        let (name, is_on) = word.strip_prefix('^').map_or((word, true), |name| (name, false));
        let (mask, value) = match name {
            "journal_data" => (DATA_MODES, 0x20),
            "journal_data_ordered" => (DATA_MODES, 0x40),
            "journal_data_writeback" => (DATA_MODES, 0x60),
            _ => {
                let known = MOUNT_OPTIONS.iter().find(|(_, known)| *known == name);
                let (bit, _) = known.ok_or_else(|| format!("unknown mount option {name}"))?;
                (*bit, *bit)
            }
        };
        options = options & !mask | if is_on { value } else { 0 };
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_options_are_added_in_order() {
        assert_eq!(mount_options("acl,user_xattr"), Ok(0xc));
        assert_eq!(mount_options("nobarrier,^acl"), Ok(0x100));
        assert_eq!(mount_options("journal_data journal_data_writeback"), Ok(0x60));
        assert!(mount_options("sparkles").unwrap_err().contains("sparkles"));
    }
}
