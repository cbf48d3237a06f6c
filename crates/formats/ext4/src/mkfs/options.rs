//! Options of a new file system.

use vfs::{Error, Result, Timestamp};

use super::tuning::Tuning;
use crate::format::features::{Compat, Feature, Features, Incompat, RoCompat};

/// Default image bytes per inode.
const INODE_RATIO_DEFAULT: u64 = 16384;

/// Image size from which blocks are 4 KiB by default, in bytes.
const LARGE_BLOCKS_FROM: u64 = 8 << 20;

/// Number of inodes to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeCount {
    /// One inode per this many bytes of the image.
    PerBytes(u64),
    /// At least this many; rounded up to fill the inode tables of all groups.
    Count(u32),
}

/// A journal on another device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalJournal {
    /// UUID of the journal.
    pub uuid: [u8; 16],
    /// Device number, as kernels use it to find the device; 0 if unknown.
    pub device_number: u32,
}

/// A feature to enable or disable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureChange {
    /// The feature.
    pub feature: Feature,
    /// True to enable it.
    pub on: bool,
}

impl FeatureChange {
    /// Parses a list such as `+large_dir,-has_journal`. A name without a sign is enabled, and `^` means the same as
    /// `-`, as in mke2fs. `none` disables all defaults.
    ///
    /// # Errors
    /// `Unsupported` with the first unknown feature.
    pub fn parse_list(list: &str) -> Result<Vec<Self>> {
        let mut changes = Vec::new();
        for item in list.split(',').filter(|item| !item.is_empty()) {
            if matches!(item, "none" | "+none") {
                let off = |name: &String| Self::parse(&format!("-{name}"));
                changes.extend(DEFAULT_FEATURES.names().iter().filter_map(|name| off(name).ok()));
            } else {
                changes.push(Self::parse(item)?);
            }
        }
        Ok(changes)
    }

    fn parse(item: &str) -> Result<Self> {
        let (name, on) = match item.strip_prefix(['-', '^']) {
            Some(name) => (name, false),
            None => (item.strip_prefix('+').unwrap_or(item), true),
        };
        match Feature::from_name(name) {
            Some(feature) => Ok(Self { feature, on }),
            None => Err(Error::unsupported(
                format!("feature {name:?}"),
                "features are named as in ext4(5)",
            )),
        }
    }
}

/// Options of a new file system.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of the image in bytes. A rest that does not fill a block stays unused.
    pub size_bytes: u64,
    /// Block size in bytes: a power of two from 1024 to 65,536. By default 4096, or 1024 below 8 MiB. Kernels before 6.19
    /// mount only blocks up to their page size.
    pub block_size: Option<u32>,
    /// Size of an inode in bytes: a power of two from 128 to the block size.
    pub inode_size: u16,
    /// Number of inodes to create.
    pub inodes: InodeCount,
    /// Label, up to 16 bytes.
    pub label: Vec<u8>,
    /// Last mount point, as stored in the superblock; up to 64 bytes.
    pub last_mounted: Vec<u8>,
    /// The file system's uuid.
    pub uuid: [u8; 16],
    /// Seed of directory hashes.
    pub hash_seed: [u8; 16],
    /// Changes to the default features, in order.
    pub features: Vec<FeatureChange>,
    /// Blocks reserved for privileged users, in percent of all: 0 to 50.
    pub reserved_percent: f64,
    /// Size of the journal in bytes; by default it depends on the size of the image.
    pub journal_bytes: Option<u64>,
    /// Journal on another device, instead of one in the image.
    pub external_journal: Option<ExternalJournal>,
    /// Value of all timestamps in the new file system.
    pub time: Timestamp,
    /// Owner of the root directory.
    pub root_uid: u32,
    /// Group of the root directory.
    pub root_gid: u32,
    /// Permissions of the root directory (below 0o10000).
    pub root_permissions: u16,
    /// Rarely used settings.
    pub tuning: Tuning,
}

impl Options {
    /// Returns the defaults for an image of `size_bytes`, with uuid, hash seed and time all zeros.
    #[must_use]
    pub fn new(size_bytes: u64) -> Self {
        Self {
            size_bytes,
            block_size: None,
            inode_size: 256,
            inodes: InodeCount::PerBytes(INODE_RATIO_DEFAULT),
            label: Vec::new(),
            last_mounted: Vec::new(),
            uuid: [0; 16],
            hash_seed: [0; 16],
            features: Vec::new(),
            reserved_percent: 5.0,
            journal_bytes: None,
            external_journal: None,
            time: Timestamp::default(),
            root_uid: 0,
            root_gid: 0,
            root_permissions: 0o755,
            tuning: Tuning::default(),
        }
    }

    /// Returns the block size in bytes, as requested or by default.
    ///
    /// # Errors
    /// `Invalid` if it is not a power of two from 1 to 64 KiB.
    pub fn checked_block_size(&self) -> Result<u32> {
        let default = if self.size_bytes < LARGE_BLOCKS_FROM { 1024 } else { 4096 };
        match self.block_size.unwrap_or(default) {
            size if size.is_power_of_two() && (1 << 10..=1 << 16).contains(&size) => Ok(size),
            _ => Err(Error::Invalid("the block size must be a power of two from 1 to 64 KiB")),
        }
    }

    /// Returns whether a feature was requested explicitly.
    fn demands(&self, feature: Feature) -> bool {
        let last = self.features.iter().rfind(|change| change.feature == feature);
        last.is_some_and(|change| change.on)
    }

    /// Returns the default features with the changes applied and dependencies resolved.
    ///
    /// # Errors
    /// `Invalid` for features that exclude each other, `Unsupported` for one this build cannot create.
    pub(super) fn resolved_features(&self) -> Result<Features> {
        let mut features = DEFAULT_FEATURES;
        for change in &self.features {
            features.set(change.feature, change.on);
        }
        refuse_unmakable(&features)?;
        for rule in &RULES {
            if !(rule.broken)(self, &features) {
                continue;
            }
            if self.demands(rule.loses) {
                return Err(Error::Invalid(rule.message));
            }
            features.set(rule.loses, false);
        }
        if features.incompat(Incompat::BIT64) && !features.incompat(Incompat::EXTENTS) {
            return Err(Error::Invalid("64bit needs extent; turn both off or both on"));
        }
        Ok(features)
    }
}

/// Dependency between features. If it is violated, `loses` is disabled, or the request is rejected if `loses` was
/// requested.
struct Rule {
    loses: Feature,
    broken: fn(&Options, &Features) -> bool,
    message: &'static str,
}

/// Rules in evaluation order: an earlier rule may change features that a later one checks.
static RULES: [Rule; 11] = [
    // In mke2fs, too, metadata_csum wins without a message.
    Rule {
        loses: Feature::RoCompat(RoCompat::GDT_CSUM),
        broken: |_, f| f.metadata_csum() && f.ro_compat(RoCompat::GDT_CSUM),
        message: "metadata_csum replaces uninit_bg; turn one of them off",
    },
    Rule {
        loses: Feature::Incompat(Incompat::CSUM_SEED),
        broken: |_, f| !f.metadata_csum(),
        message: "metadata_csum_seed needs metadata_csum",
    },
    Rule {
        loses: Feature::Compat(Compat::ORPHAN_FILE),
        broken: |_, f| !f.compat(Compat::HAS_JOURNAL),
        message: "orphan_file needs has_journal",
    },
    Rule {
        loses: Feature::Compat(Compat::FAST_COMMIT),
        broken: |_, f| !f.compat(Compat::HAS_JOURNAL),
        message: "fast_commit needs has_journal",
    },
    Rule {
        loses: Feature::RoCompat(RoCompat::BIGALLOC),
        broken: |_, f| !f.incompat(Incompat::EXTENTS),
        message: "bigalloc needs extent",
    },
    Rule {
        loses: Feature::Compat(Compat::RESIZE_INODE),
        broken: |_, f| f.incompat(Incompat::META_BG),
        message: "meta_bg and resize_inode exclude each other",
    },
    Rule {
        loses: Feature::Compat(Compat::RESIZE_INODE),
        broken: |_, f| !f.ro_compat(RoCompat::SPARSE_SUPER),
        message: "resize_inode needs sparse_super",
    },
    // Its file size covers everything that its double indirect block can map.
    Rule {
        loses: Feature::Compat(Compat::RESIZE_INODE),
        broken: |o, f| {
            !f.ro_compat(RoCompat::LARGE_FILE) && o.checked_block_size().is_ok_and(|b| b >= 4096)
        },
        message: "resize_inode needs large_file where blocks have 4 KiB or more",
    },
    Rule {
        loses: Feature::Incompat(Incompat::BIT64),
        broken: |o, f| !f.incompat(Incompat::EXTENTS) && !o.demands(BIT64),
        message: "64bit needs extent",
    },
    Rule {
        loses: Feature::Incompat(Incompat::INLINE_DATA),
        broken: |o, _| o.inode_size <= 128,
        message: "inline_data needs inodes above 128 bytes",
    },
    Rule {
        loses: Feature::RoCompat(RoCompat::PROJECT),
        broken: |o, _| o.inode_size <= 128,
        message: "project needs inodes above 128 bytes",
    },
];

const BIT64: Feature = Feature::Incompat(Incompat::BIT64);

/// Returns the names of the default features, as in ext4(5).
#[must_use]
pub fn default_feature_names() -> Vec<String> {
    DEFAULT_FEATURES.names()
}

/// Features that mke2fs 1.47 enables for ext4 (some distributions disable a few in mke2fs.conf).
const DEFAULT_FEATURES: Features = Features {
    compat: Compat::HAS_JOURNAL
        .union(Compat::EXT_ATTR)
        .union(Compat::RESIZE_INODE)
        .union(Compat::DIR_INDEX)
        .union(Compat::ORPHAN_FILE),
    incompat: Incompat::FILETYPE
        .union(Incompat::EXTENTS)
        .union(Incompat::BIT64)
        .union(Incompat::FLEX_BG)
        .union(Incompat::CSUM_SEED),
    ro_compat: RoCompat::SPARSE_SUPER
        .union(RoCompat::LARGE_FILE)
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::METADATA_CSUM),
};

/// Rejects features whose structures cannot be created here.
fn refuse_unmakable(features: &Features) -> Result<()> {
    let makable = Features {
        compat: DEFAULT_FEATURES
            .compat
            .union(Compat::SPARSE_SUPER2)
            .union(Compat::FAST_COMMIT)
            .union(Compat::STABLE_INODES),
        incompat: DEFAULT_FEATURES
            .incompat
            .union(Incompat::META_BG)
            .union(Incompat::MMP)
            .union(Incompat::EA_INODE)
            .union(Incompat::LARGEDIR)
            .union(Incompat::INLINE_DATA)
            .union(Incompat::ENCRYPT)
            .union(Incompat::CASEFOLD),
        ro_compat: DEFAULT_FEATURES
            .ro_compat
            .union(RoCompat::GDT_CSUM)
            .union(RoCompat::BIGALLOC)
            .union(RoCompat::PROJECT)
            .union(RoCompat::VERITY),
    };
    let others = Features {
        compat: features.compat.difference(makable.compat),
        incompat: features.incompat.difference(makable.incompat),
        ro_compat: features.ro_compat.difference(makable.ro_compat),
    };
    let names = others.names();
    if names.is_empty() {
        return Ok(());
    }
    Err(Error::unsupported(
        format!("creating a file system with {}", names.join(", ")),
        "leave it out, or create the file system with mke2fs",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(list: &str) -> Result<Vec<String>> {
        let features = FeatureChange::parse_list(list)?;
        Ok(Options { features, ..Options::new(1 << 30) }.resolved_features()?.names())
    }

    #[test]
    fn dependants_go_with_what_they_rest_on() {
        let names = resolve("-has_journal,^metadata_csum,^extent").unwrap();
        for gone in ["has_journal", "orphan_file", "metadata_csum_seed", "64bit", "extent"] {
            assert!(!names.iter().any(|name| name == gone), "{gone} in {names:?}");
        }
    }

    #[test]
    fn requested_features_are_never_dropped_silently() {
        assert!(matches!(resolve("-has_journal,+orphan_file"), Err(Error::Invalid(_))));
        assert!(matches!(resolve("-extent,+64bit"), Err(Error::Invalid(_))));
        assert!(matches!(resolve("meta_bg,resize_inode"), Err(Error::Invalid(_))));
    }

    #[test]
    fn unsupported_options_are_named() {
        let message = resolve("+journal_dev,+quota").unwrap_err().to_string();
        assert!(message.contains("journal_dev, quota"), "{message}");
        assert!(resolve("+sparkles").unwrap_err().to_string().contains("\"sparkles\""));
    }
}
