//! Properties of a file system by type and use, before explicit options.

use diskwright::build::{FeatureChange, Tuning};

use super::args::{Args, BlockSize, features, is_block_size};
use super::config::Config;
use super::conflicts;
use super::tuning;
use super::values::{Values, has};
use crate::failure::{Failure, STATUSES};

/// Uses by size, with exclusive upper limits in bytes.
const USES: [(&str, u64); 4] =
    [("floppy", 3 << 20), ("small", 512 << 20), ("default", 4 << 40), ("big", 16 << 40)];
/// Use for larger sizes.
const LARGEST: &str = "huge";

/// Page size in bytes, which is the default block size.
const PAGE_BYTES: u32 = 4096;
/// Default bytes per inode without a configured value.
const INODE_RATIO_DEFAULT: u64 = 8192;
/// Size of an inode without times after 2038, the default without a configured value.
const OLD_INODE_BYTES: u32 = 128;

/// Properties that follow from type and use.
#[derive(Debug)]
pub(super) struct Profile {
    pub(super) block_size: u32,
    pub(super) inode_size: u32,
    pub(super) bytes_per_inode: u64,
    pub(super) reserved_percent: Option<f64>,
    /// Features of the type, followed by explicit ones.
    pub(super) features: Vec<FeatureChange>,
    pub(super) tuning: Tuning,
    /// Remarks to print at the start.
    pub(super) remarks: Vec<String>,
}

/// File system of a profile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    /// Name under which the program was called.
    pub(super) name: &'a str,
    pub(super) bytes: u64,
    /// Sector size of the device in bytes, unless the default.
    pub(super) sector: Option<u32>,
}

impl Profile {
    /// Returns the profile for the configuration and the arguments. Extended options of the configuration precede those
    /// of the arguments.
    pub(super) fn of(
        args: &mut Args,
        subject: Subject<'_>,
        config: &Config,
    ) -> Result<Self, Failure> {
        let types = types(args, subject.name, subject.bytes, config);
        let values = Values::new(config, &types);
        values.refuse_what_is_not_made()?;
        if let Some(list) = config.get(&types, "options") {
            let at = |failure: Failure| {
                STATUSES.failed(format_args!("mke2fs.conf: options: {}", failure.message))
            };
            args.prepend(list).map_err(at)?;
        }
        let block_size = block_size(args, subject, &values)?;
        let features = wanted_features(args, subject, &values, block_size)?;
        let features = conflicts::without_effect(features);
        conflicts::refuse(&features)?;
        let inode_size = args.inode_size.or(values.small("inode_size")?);
        let inode_size = inode_size.unwrap_or(OLD_INODE_BYTES);
        let mut remarks = unknown_types(args, &types, config);
        if inode_size == OLD_INODE_BYTES && values.switch("warn_y2038_dates")?.unwrap_or(true) {
            let remark = "128-byte inodes cannot handle dates beyond 2038 and are deprecated";
            remarks.push(remark.into());
        }
        let (tuning, more) = tuning::of(args, &values, &features, block_size)?;
        remarks.extend(more);
        Ok(Self {
            block_size,
            inode_size,
            bytes_per_inode: bytes_per_inode(&values, block_size, &features, &tuning)?,
            reserved_percent: values.by("reserved_ratio", reserved)?,
            features,
            tuning,
            remarks,
        })
    }
}

/// Returns the block size in bytes, at least the sector size of the device.
fn block_size(args: &Args, subject: Subject<'_>, values: &Values<'_>) -> Result<u32, Failure> {
    let sector = subject.sector.unwrap_or(0);
    if let Some(BlockSize::Given(given)) = args.block_size {
        if given < sector {
            return Err(STATUSES.failed(format_args!(
                "Invalid argument while setting blocksize; too small for device ({sector}-byte sectors)"
            )));
        }
        return Ok(given);
    }
    let usual = values.by("blocksize", |text| match text {
        "-1" => Ok(PAGE_BYTES),
        _ => match text.parse() {
            Ok(size) if is_block_size(size) => Ok(size as u32),
            _ => Err("the block size must be a power of two from 1024 to 65536 bytes".into()),
        },
    });
    let usual = usual?.unwrap_or(PAGE_BYTES).max(sector);
    Ok(match args.block_size {
        Some(BlockSize::AtLeast(least)) => usual.max(least),
        _ => usual,
    })
}

/// Returns the bytes per inode, at least the cluster size.
fn bytes_per_inode(
    values: &Values<'_>,
    block_size: u32,
    features: &[FeatureChange],
    tuning: &Tuning,
) -> Result<u64, Failure> {
    let ratio = values.number("inode_ratio")?;
    let ratio = ratio.map_or(INODE_RATIO_DEFAULT, |ratio| u64::try_from(ratio).unwrap_or(0));
    let cluster = if has(features, "bigalloc") {
        tuning.cluster_bytes.unwrap_or(16 * u64::from(block_size))
    } else {
        0
    };
    Ok(ratio.max(block_size.into()).max(cluster))
}

fn reserved(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio| (0.0..=50.0).contains(ratio));
    ratio.ok_or_else(|| "it must be 0 to 50 percent".into())
}

/// Returns all features: those of the types, followed by explicit ones.
fn wanted_features(
    args: &Args,
    subject: Subject<'_>,
    values: &Values<'_>,
    block_size: u32,
) -> Result<Vec<FeatureChange>, Failure> {
    let mut lists = values.feature_lists();
    if args.features.is_empty() {
        // Features in the arguments replace these.
        lists.extend(values.get("default_features"));
    }
    if args.has_journal {
        lists.push("has_journal");
    }
    let mut asked = args.features.clone();
    let mut add = |name: &str, is_on| asked.push(FeatureChange { name: name.into(), is_on });
    if args.extended.encoding.is_some() {
        add("casefold", true);
    }
    if args.extended.resize.is_some() {
        add("resize_inode", true);
    }
    let needs_64bit = subject.bytes / u64::from(block_size) > u32::MAX.into();
    if needs_64bit && values.switch("auto_64-bit_support")?.unwrap_or(false) {
        add("64bit", true);
        add("resize_inode", false);
    }
    all_features(&lists, &asked)
}

/// Returns the type and the uses.
fn types(args: &Args, name: &str, bytes: u64, config: &Config) -> Vec<String> {
    let of_name = name.strip_prefix("mkfs.").map(str::to_owned);
    let of_device = |name| config.of_device(&args.image, name).map(str::to_owned);
    let usual = || {
        let without = if args.has_journal { "ext3" } else { "ext2" };
        config.get(&[], "fs_type").unwrap_or(without).to_owned()
    };
    let kind = args.kind.clone().or(of_name).or_else(|| of_device("fs_type"));
    let mut types = vec![kind.unwrap_or_else(usual)];
    if !args.uses.is_empty() {
        types.extend(args.uses.iter().cloned());
    } else if let Some(uses) = of_device("usage_types") {
        types.extend(uses.split(',').map(|word| word.trim().to_owned()));
    } else {
        let by_size = USES.iter().find(|(_, below)| bytes < *below);
        types.push(by_size.map_or(LARGEST, |(name, _)| name).to_owned());
    }
    types
}

/// Returns requested uses that the configuration lacks.
fn unknown_types(args: &Args, types: &[String], config: &Config) -> Vec<String> {
    let uses = types.iter().skip(1).filter(|kind| !args.uses.is_empty() && *kind != "default");
    let unknown = uses.filter(|kind| !config.has_type(kind));
    unknown
        .map(|kind| format!("Warning: the fs_type {kind} is not defined in mke2fs.conf"))
        .collect()
}

/// Returns the changes that turn the engine's default features into those of `lists`, followed by explicit ones.
/// Features from the lists are dropped if they conflict with explicit ones.
fn all_features(lists: &[&str], asked: &[FeatureChange]) -> Result<Vec<FeatureChange>, Failure> {
    if asked.iter().any(|change| change.name == "none") {
        return Ok(asked.to_vec());
    }
    let mut wanted = Vec::new();
    for list in lists {
        let changes = features(list)
            .map_err(|why| STATUSES.failed(format_args!("mke2fs.conf: {list}: {why}")))?;
        for FeatureChange { name, is_on } in changes {
            wanted.retain(|known| *known != name && name != "none");
            if is_on && name != "none" {
                wanted.push(name);
            }
        }
    }
    let usual = ext4::mkfs::default_feature_names();
    let off = usual.iter().filter(|name| !wanted.contains(name));
    let off = off.map(|name| FeatureChange { name: name.clone(), is_on: false });
    let on = wanted.iter().filter(|name| !usual.contains(name));
    let on = on.map(|name| FeatureChange { name: name.clone(), is_on: true });
    Ok(off.chain(on).chain(asked.iter().cloned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(lists: &[&str], asked: &str) -> Vec<String> {
        let changes = all_features(lists, &features(asked).unwrap()).unwrap();
        changes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_differences_from_the_defaults_are_asked_for() {
        let usual = ext4::mkfs::default_feature_names().join(",");
        assert!(names(&[&usual], "").is_empty());
        assert_eq!(
            names(&[&usual, "^64bit,large_dir"], "^extents"),
            ["^64bit", "+large_dir", "^extent"]
        );
        assert_eq!(names(&[&usual], "none,has_journal"), ["+none", "+has_journal"]);
        assert!(names(&["filetype"], "").contains(&"^has_journal".to_owned()));
    }

    #[test]
    fn uses_follow_from_the_size() {
        let config = Config::default();
        let args = Args::default();
        assert_eq!(types(&args, "mkfs.ext4", 1 << 20, &config), ["ext4", "floppy"]);
        assert_eq!(types(&args, "mke2fs", 1 << 30, &config), ["ext2", "default"]);
        assert_eq!(types(&args, "mkfs.ext3", 16 << 40, &config), ["ext3", "huge"]);
        let args = Args { uses: vec!["news".into()], kind: Some("ext4".into()), ..Args::default() };
        assert_eq!(types(&args, "mke2fs", 1 << 20, &config), ["ext4", "news"]);
    }
}
