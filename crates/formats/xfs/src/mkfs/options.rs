//! Options of a new file system.

use vfs::{Error, Result, Timestamp};

use crate::format::features::{Features, Features2, Incompat, LogIncompat, RoCompat, Version};

/// Maximum length of a label in bytes.
pub const LABEL_LEN_MAX: usize = 12;
/// Minimum size of an image that mkfs.xfs makes, in bytes.
pub const SIZE_MIN: u64 = 300 << 20;
/// Minimum size with [`Options::allow_small`]: one allocation group of the minimum size, in bytes.
pub const SMALL_SIZE_MIN: u64 = 16 << 20;
/// Minimum size of directory blocks in bytes.
const DIR_BLOCK_SIZE_MIN: u32 = 4096;
/// Maximum size of directory blocks in bytes.
const DIR_BLOCK_SIZE_MAX: u32 = 64 << 10;
/// Maximum stripe unit of the log in bytes (`XLOG_MAX_RECORD_BSIZE`).
const LOG_STRIPE_BYTES_MAX: u32 = 256 << 10;
/// Stripe unit of the log in bytes if that of the device is larger than the maximum.
const LOG_STRIPE_BYTES_USUAL: u32 = 32 << 10;
/// Default size of realtime extents in bytes, unless blocks are larger.
const EXTENT_BYTES_USUAL: u32 = 4096;
/// Maximum stripe width in blocks.
const STRIPE_BLOCKS_MAX: u32 = i32::MAX as u32;

/// A feature that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// A feature in `sb_features_ro_compat`.
    RoCompat(RoCompat),
    /// A feature in `sb_features_incompat`.
    Incompat(Incompat),
    /// A feature in `sb_versionnum`.
    Version(Version),
}

/// Names of features, as in the options of mkfs.xfs.
const NAMES: [(&str, Feature); 10] = [
    ("finobt", Feature::RoCompat(RoCompat::FINOBT)),
    ("rmapbt", Feature::RoCompat(RoCompat::RMAPBT)),
    ("reflink", Feature::RoCompat(RoCompat::REFLINK)),
    ("inobtcount", Feature::RoCompat(RoCompat::INOBTCOUNT)),
    ("sparse", Feature::Incompat(Incompat::SPINODES)),
    ("bigtime", Feature::Incompat(Incompat::BIGTIME)),
    ("nrext64", Feature::Incompat(Incompat::NREXT64)),
    ("exchange", Feature::Incompat(Incompat::EXCHRANGE)),
    ("parent", Feature::Incompat(Incompat::PARENT)),
    ("metadir", Feature::Incompat(Incompat::METADIR)),
];

/// The only feature in `sb_versionnum`; off by default.
const ASCII_CI: (&str, Feature) = ("ascii-ci", Feature::Version(Version::BORG));

/// Features that version 5 always has.
const FIXED: [&str; 6] = ["crc", "ftype", "lazy-count", "attr2", "projid32bit", "logv2"];

impl Feature {
    /// Returns the feature with this mkfs.xfs name.
    #[must_use]
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let mut all = NAMES.iter().chain([&ASCII_CI]);
        all.find(|(known, _)| *known == name).map(|(_, feature)| *feature)
    }

    fn set(self, features: &mut Features, on: bool) {
        match self {
            Self::RoCompat(bit) => features.ro_compat.set(bit, on),
            Self::Incompat(bit) => features.incompat.set(bit, on),
            Self::Version(bit) => features.version_bits.set(bit, on),
        }
    }
}

/// A feature to turn on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureChange {
    /// The feature.
    pub feature: Feature,
    /// True to turn it on, false to turn it off.
    pub on: bool,
}

impl FeatureChange {
    /// Parses a list such as `+ascii-ci,-parent`. A name without a sign is turned on, `^` means the same as `-`, and
    /// `NAME=0` and `NAME=1` are accepted as well.
    ///
    /// # Errors
    /// `Unsupported` for an unknown feature, or one that cannot be turned off.
    pub fn parse_list(list: &str) -> Result<Vec<Self>> {
        let items = list.split(',').filter(|item| !item.is_empty());
        items.filter_map(|item| Self::parse(item).transpose()).collect()
    }

    /// Returns `None` for a fixed feature.
    fn parse(item: &str) -> Result<Option<Self>> {
        let (name, on) = match item.strip_prefix(['-', '^']) {
            Some(name) => (name, false),
            None => (item.strip_prefix('+').unwrap_or(item), true),
        };
        let (name, on) = match name.split_once('=') {
            Some((name, "0")) => (name, !on),
            Some((name, "1")) => (name, on),
            _ => (name, on),
        };
        if let Some(feature) = Feature::from_name(name) {
            return Ok(Some(Self { feature, on }));
        }
        match FIXED.contains(&name) {
            true if on => Ok(None),
            true => Err(Error::unsupported(
                format!("creating a file system without {name}"),
                "version 5 always has it, and version 4 is read-only",
            )),
            false => Err(Error::unsupported(
                format!("feature {name:?}"),
                "features are named as in mkfs.xfs(8): finobt, rmapbt, reflink, inobtcount, sparse, \
                 bigtime, nrext64, exchange, parent, metadir, ascii-ci",
            )),
        }
    }
}

/// The preventive maintenance that `xfs_scrub_all` does: the attribute `xfs:autofsck` of the root directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Autofsck {
    /// No maintenance.
    None,
    /// Check without repairs.
    Check,
    /// Only optimise.
    Optimize,
    /// Check and repair.
    Repair,
}

impl Autofsck {
    /// All values.
    pub const ALL: [Self; 4] = [Self::None, Self::Check, Self::Optimize, Self::Repair];

    /// Returns the value of the attribute, which mkfs.xfs(8) also accepts as its option.
    #[must_use]
    pub const fn value(self) -> &'static str {
        ["none", "check", "optimize", "repair"][self as usize]
    }
}

/// Options of a new file system.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of the image in bytes. A partial block at the end is not used.
    pub size_bytes: u64,
    /// Block size in bytes: a power of two from 1 to 64 KiB.
    pub block_size: u32,
    /// Size of an inode in bytes: 512, 1024 or 2048, at most half a block.
    pub inode_size: u16,
    /// Size of a directory block in bytes: a power of two, at least 4 KiB and the block size, at most 64 KiB. Defaults
    /// to the minimum.
    pub dir_block_size: Option<u32>,
    /// Sector size in bytes: a power of two from 512 to 32 KiB, at most the block size.
    pub sector_size: u32,
    /// Number of allocation groups. By default computed from the size.
    pub ag_count: Option<u32>,
    /// Size of an allocation group in bytes, a multiple of the block size. Excludes `ag_count`.
    pub ag_bytes: Option<u64>,
    /// Size of the log in bytes. By default computed from the size of the image.
    pub log_bytes: Option<u64>,
    /// Group that contains the log; by default the middle one.
    pub log_group: Option<u32>,
    /// True to place the log on another device, from its start on.
    pub external_log: bool,
    /// Stripe unit of the log in bytes: a multiple of the block size, at most 256 KiB. By default records are aligned
    /// to sectors of 512 bytes, or to blocks if sectors are larger.
    pub log_stripe_bytes: Option<u32>,
    /// Size in bytes that atomic writes may have: allocation groups are aligned to it, and the log has room for them. A
    /// power of two of at least a block. Needs the feature reflink.
    pub atomic_write_bytes: Option<u64>,
    /// Stripes of the device: they decide the size of groups, where the first inodes and the log are, and by default the
    /// stripe unit of the log.
    pub stripe: Option<Stripe>,
    /// Label, at most 12 bytes.
    pub label: Vec<u8>,
    /// UUID of the file system.
    pub uuid: [u8; 16],
    /// Changes to the default features, in order.
    pub features: Vec<FeatureChange>,
    /// Quotas that kernels account and enforce, as in `sb_qflags`. They are counted at the first mount, unlike those of
    /// [`crate::tune::make_quotas`]. Needs the feature `metadir`.
    pub quota_flags: u16,
    /// Value of the attribute `xfs:autofsck` of the root directory; by default it has none.
    pub autofsck: Option<Autofsck>,
    /// Maximum share of space for inodes, in percent: 0 (no limit) to 100. By default computed from the size.
    pub inodes_percent_max: Option<u8>,
    /// Allow images below 300 MiB, which mkfs.xfs refuses.
    pub allow_small: bool,
    /// Refuse what mkfs.xfs refuses without `--unsupported`: a log of less than 64 MiB, and fewer than 300 MiB in whole
    /// groups.
    pub only_supported: bool,
    /// Time used for all timestamps in the new file system.
    pub time: Timestamp,
    /// Owner of the root directory.
    pub root_uid: u32,
    /// Group of the root directory.
    pub root_gid: u32,
    /// Permissions of the root directory (below 0o10000).
    pub root_permissions: u16,
    /// The realtime section; `None` for none.
    pub realtime: Option<RealtimeSection>,
    /// Attributes that new files inherit from the root directory.
    pub inherited: Inherited,
}

/// Stripes of the device of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// Stripe unit in bytes: a multiple of the block size.
    pub unit_bytes: u32,
    /// Number of units of a whole stripe.
    pub units: u32,
}

impl Stripe {
    /// Returns the unit and the width in blocks (`sb_unit`, `sb_width`); `None` if they are invalid.
    pub(super) fn in_blocks(self, block_size: u32) -> Option<(u32, u32)> {
        let unit = self.unit_bytes / block_size;
        let is_valid = unit > 0 && self.unit_bytes.is_multiple_of(block_size) && self.units > 0;
        let width = unit.checked_mul(self.units).filter(|width| *width <= STRIPE_BLOCKS_MAX)?;
        is_valid.then_some((unit, width))
    }
}

/// Attributes of the root directory that new files inherit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inherited {
    /// New files are on the realtime device.
    pub realtime: bool,
    /// New files use direct access to persistent memory.
    pub dax: bool,
    /// Extent size hint in blocks; 0 for none.
    pub extent_blocks: u32,
    /// Copy-on-write extent size hint in blocks; 0 for none. Needs the feature reflink.
    pub cow_extent_blocks: u32,
    /// Project; 0 for none.
    pub project: u32,
}

/// A realtime section to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealtimeSection {
    /// Size of the section in bytes; 0 for only the sizes of extents and groups of a future section. A partial block at
    /// the end is not used.
    pub bytes: u64,
    /// Size of a realtime extent in bytes: a multiple of the block size from 4 KiB to 1 GiB. By default the block size,
    /// at least 4 KiB.
    pub extent_bytes: Option<u32>,
    /// Size of a realtime group in bytes, a multiple of the realtime extent size. Needs the feature metadir.
    pub group_bytes: Option<u64>,
    /// Number of realtime groups. Excludes `group_bytes`. The default size of groups is that of mkfs.xfs.
    pub group_count: Option<u32>,
}

impl RealtimeSection {
    /// Returns a section of `bytes` bytes, with defaults.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self { bytes, extent_bytes: None, group_bytes: None, group_count: None }
    }
}

impl Options {
    /// Returns the defaults for an image of `size_bytes`, with UUID and time all zeros.
    #[must_use]
    pub fn new(size_bytes: u64) -> Self {
        Self {
            size_bytes,
            block_size: 4096,
            inode_size: 512,
            dir_block_size: None,
            sector_size: 512,
            ag_count: None,
            ag_bytes: None,
            log_bytes: None,
            log_group: None,
            external_log: false,
            log_stripe_bytes: None,
            atomic_write_bytes: None,
            stripe: None,
            label: Vec::new(),
            uuid: [0; 16],
            features: Vec::new(),
            quota_flags: 0,
            autofsck: None,
            inodes_percent_max: None,
            allow_small: false,
            only_supported: false,
            time: Timestamp::default(),
            root_uid: 0,
            root_gid: 0,
            root_permissions: 0o755,
            realtime: None,
            inherited: Inherited::default(),
        }
    }

    /// Returns the size of a directory block in bytes, as given or by default.
    pub(super) fn dir_block_size(&self) -> u32 {
        self.dir_block_size.unwrap_or(self.block_size.max(DIR_BLOCK_SIZE_MIN))
    }

    /// Returns the stripe unit of the log in bytes, as given or as that of the device.
    pub(super) fn log_stripe(&self) -> Option<u32> {
        let of_device = |stripe: Stripe| match stripe.unit_bytes <= LOG_STRIPE_BYTES_MAX {
            true => stripe.unit_bytes,
            false => LOG_STRIPE_BYTES_USUAL.max(self.block_size),
        };
        let own = self.stripe.filter(|_| !self.external_log).map(of_device);
        self.log_stripe_bytes.or(own)
    }

    /// Checks the sizes.
    pub(super) fn check_sizes(&self) -> Result<()> {
        let power =
            |size: u32, min: u32, max: u32| size.is_power_of_two() && (min..=max).contains(&size);
        if !power(self.block_size, 1024, 64 << 10) {
            return Err(Error::Invalid("the block size must be a power of two, 1 to 64 KiB"));
        }
        if !power(self.sector_size, 512, 32 << 10) || self.sector_size > self.block_size {
            return Err(Error::Invalid(
                "the sector size must be a power of two, 512 bytes to 32 KiB, and at most the block size",
            ));
        }
        if !power(self.inode_size.into(), 512, 2048) {
            return Err(Error::Invalid("the inode size must be 512, 1024 or 2048 bytes"));
        }
        if u32::from(self.inode_size) > self.block_size / 2 {
            return Err(Error::Invalid("the inode size must be at most half the block size"));
        }
        let smallest = self.block_size.max(DIR_BLOCK_SIZE_MIN);
        if !power(self.dir_block_size(), smallest, DIR_BLOCK_SIZE_MAX) {
            return Err(Error::Invalid(
                "the directory block size must be a power of two, from the block size and from 4 KiB to \
                 64 KiB",
            ));
        }
        let stripe = self.log_stripe_bytes.unwrap_or(self.block_size);
        if stripe == 0 || !stripe.is_multiple_of(self.block_size) || stripe > LOG_STRIPE_BYTES_MAX {
            return Err(Error::Invalid(
                "the log stripe unit must be a multiple of the block size, and at most 256 KiB",
            ));
        }
        if self.stripe.is_some_and(|stripe| stripe.in_blocks(self.block_size).is_none()) {
            return Err(Error::Invalid(
                "the stripe unit must be a multiple of the block size, and the stripe width a multiple of \
                 the unit below 2^31 blocks",
            ));
        }
        self.check_atomic_writes()?;
        self.check_numbers()
    }

    fn check_atomic_writes(&self) -> Result<()> {
        let Some(bytes) = self.atomic_write_bytes else { return Ok(()) };
        if !bytes.is_power_of_two() || bytes < self.block_size.into() {
            return Err(Error::Invalid(
                "the size of atomic writes must be a power of two of at least a block",
            ));
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<()> {
        if self.size_bytes < SMALL_SIZE_MIN {
            return Err(Error::Invalid("XFS needs at least 16 MiB"));
        }
        if self.size_bytes < SIZE_MIN && !self.allow_small {
            return Err(Error::Invalid(
                "XFS images below 300 MiB are slow and not well tested; set `allow_small` to \
                 create one",
            ));
        }
        if self.label.len() > LABEL_LEN_MAX {
            return Err(Error::Invalid("labels have at most 12 bytes"));
        }
        if self.inodes_percent_max.is_some_and(|percent| percent > 100) {
            return Err(Error::Invalid("inodes can use at most 100 percent of the space"));
        }
        if self.ag_count.is_some() && self.ag_bytes.is_some() {
            return Err(Error::Invalid(
                "set the number of allocation groups or their size, not both",
            ));
        }
        Ok(())
    }

    /// Returns whether a feature was explicitly turned on.
    pub(super) fn demands(&self, feature: Feature) -> bool {
        let last = self.features.iter().rfind(|change| change.feature == feature);
        last.is_some_and(|change| change.on)
    }

    /// Returns the default features with the changes applied and dependencies resolved.
    ///
    /// # Errors
    /// `Invalid` for an explicitly chosen feature without its prerequisites.
    pub(super) fn resolved_features(&self) -> Result<Features> {
        let mut features = DEFAULT_FEATURES;
        for change in &self.features {
            change.feature.set(&mut features, change.on);
        }
        let inobtcount = Feature::RoCompat(RoCompat::INOBTCOUNT);
        if !features.ro_compat.contains(RoCompat::FINOBT) {
            if self.demands(inobtcount) {
                return Err(Error::Invalid("inobtcount needs finobt; turn both off or both on"));
            }
            inobtcount.set(&mut features, false);
        }
        features.version_bits.set(Version::SECTOR, self.sector_size != 512);
        if self.quota_flags != 0 && !features.incompat(Incompat::METADIR) {
            return Err(Error::Invalid("quotas of a new file system need the feature metadir"));
        }
        features.version_bits.set(Version::QUOTA, self.quota_flags != 0);
        self.restrict_for_realtime(&mut features)?;
        let has_reflink = features.ro_compat.contains(RoCompat::REFLINK);
        if self.atomic_write_bytes.is_some() && !has_reflink {
            return Err(Error::Invalid("a maximum size of atomic writes needs reflink"));
        }
        if self.inherited.cow_extent_blocks != 0 && !has_reflink {
            return Err(Error::Invalid("a copy-on-write extent size hint needs reflink"));
        }
        Ok(features)
    }

    /// Turns off reflink if the section has groups and larger realtime extents than blocks, or the features that need
    /// a section with groups, unless they are demanded.
    ///
    /// # Errors
    /// `Invalid` if one of them is demanded.
    fn restrict_for_realtime(&self, features: &mut Features) -> Result<()> {
        let Some(section) = self.realtime.filter(|section| section.bytes != 0) else {
            return Ok(());
        };
        if features.incompat(Incompat::METADIR) {
            // An explicit extent size turns it off, as in mkfs.xfs.
            let is_block = self.block_size >= EXTENT_BYTES_USUAL && section.extent_bytes.is_none();
            if !is_block && self.demands(Feature::RoCompat(RoCompat::REFLINK)) {
                return Err(Error::Invalid("reflink is not possible with a realtime extent size"));
            }
            features
                .ro_compat
                .set(RoCompat::REFLINK, features.ro_compat(RoCompat::REFLINK) && is_block);
            return Ok(());
        }
        for (bit, name) in [
            (RoCompat::RMAPBT, "rmapbt is not possible with a realtime section without groups"),
            (RoCompat::REFLINK, "reflink is not possible with a realtime section without groups"),
        ] {
            if self.demands(Feature::RoCompat(bit)) {
                return Err(Error::Invalid(name));
            }
            features.ro_compat.remove(bit);
        }
        Ok(())
    }
}

/// The default features of mkfs.xfs 6.18 and newer.
const DEFAULT_FEATURES: Features = Features {
    version: 5,
    version_bits: Version::ATTR
        .union(Version::NLINK)
        .union(Version::ALIGN)
        .union(Version::LOGV2)
        .union(Version::EXTFLG)
        .union(Version::DIRV2)
        .union(Version::MOREBITS),
    features2: Features2::LAZYSBCOUNT
        .union(Features2::ATTR2)
        .union(Features2::PROJID32)
        .union(Features2::CRC),
    compat: 0,
    ro_compat: RoCompat::FINOBT
        .union(RoCompat::RMAPBT)
        .union(RoCompat::REFLINK)
        .union(RoCompat::INOBTCOUNT),
    incompat: Incompat::FTYPE
        .union(Incompat::SPINODES)
        .union(Incompat::BIGTIME)
        .union(Incompat::NREXT64)
        .union(Incompat::EXCHRANGE)
        .union(Incompat::PARENT),
    log_incompat: LogIncompat::empty(),
};

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(list: &str) -> Result<Features> {
        let features = FeatureChange::parse_list(list)?;
        Options { features, ..Options::new(1 << 30) }.resolved_features()
    }

    #[test]
    fn counts_of_inode_trees_go_with_the_tree() {
        let features = resolve("-finobt").unwrap();
        assert_eq!(features.ro_compat, RoCompat::RMAPBT | RoCompat::REFLINK);
        assert!(matches!(resolve("-finobt,+inobtcount"), Err(Error::Invalid(_))));
    }

    #[test]
    fn names_are_those_of_mkfs() {
        let features = resolve("parent=0,exchange=0,^bigtime,ascii-ci,+crc").unwrap();
        let left = Incompat::FTYPE | Incompat::SPINODES | Incompat::NREXT64;
        assert_eq!(features.incompat, left);
        assert!(features.ascii_ci());
        assert!(resolve("+sparkles").unwrap_err().to_string().contains("\"sparkles\""));
        assert!(resolve("-crc").unwrap_err().to_string().contains("version 4"));
    }

    #[test]
    fn invalid_sizes_are_refused() {
        let good = Options::new(1 << 30);
        good.check_sizes().unwrap();
        let bad = [
            Options { block_size: 512, ..good.clone() },
            Options { inode_size: 256, ..good.clone() },
            Options { inode_size: 1024, block_size: 1024, ..good.clone() },
            Options { sector_size: 8192, ..good.clone() },
            Options { dir_block_size: Some(2048), ..good.clone() },
            Options { log_stripe_bytes: Some(0), ..good.clone() },
            Options { log_stripe_bytes: Some(5000), ..good.clone() },
            Options { log_stripe_bytes: Some(512 << 10), ..good.clone() },
            Options { size_bytes: 100 << 20, ..good.clone() },
            Options { label: vec![b'x'; 13], ..good.clone() },
        ];
        for options in bad {
            assert!(matches!(options.check_sizes(), Err(Error::Invalid(_))), "{options:?}");
        }
        Options { size_bytes: 100 << 20, allow_small: true, ..good }.check_sizes().unwrap();
    }
}
