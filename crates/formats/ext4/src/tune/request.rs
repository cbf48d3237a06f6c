//! Requested feature changes, and which of them need more than the superblock.

use vfs::{Error, Result, Timestamp};

use crate::format::checksum::file_system_seed;
use crate::format::features::{Compat, Feature, Features, Incompat, RoCompat};
use crate::format::inode::GOOD_OLD_INODE_SIZE;
use crate::format::superblock::{CHECKSUM_TYPE_CRC32C, RawSuperblock, Superblock};
use crate::mkfs::journal::NewJournal;

/// `s_encoding` of UTF-8, version 12.1.
const ENCODING_UTF8_12_1: u16 = 1;
/// `s_encrypt_algos` as tune2fs sets them: AES-256-XTS for contents and AES-256-CTS for names.
const ENCRYPTION_ALGORITHMS: [u8; 4] = [1, 4, 0, 0];
/// Default `s_mmp_update_interval` in seconds.
pub(super) const MMP_INTERVAL: u16 = 5;

/// Changes of a closed file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// Features to enable or disable, in order.
    pub features: Vec<(Feature, bool)>,
    /// A new journal in the image.
    pub journal: NewJournal,
    /// Uses the journal on another device, which has this device number, or 0. The device is joined to the image.
    pub journal_device: Option<u32>,
    /// Number of blocks of the orphan file.
    pub orphan_blocks: Option<u64>,
    /// Quotas of users, groups and projects: on, off, or unchanged.
    pub quotas: [Option<bool>; 3],
    /// Times of new quota files; by default the current time.
    pub time: Option<Timestamp>,
    /// UUID of the file system.
    pub uuid: Option<[u8; 16]>,
    /// Flags of the encoding. Names are UTF-8.
    pub encoding_flags: Option<u16>,
    /// True to remove a journal on another device that is missing.
    pub forgets_journal: bool,
    /// True to remove the mark that another host uses the file system.
    pub clears_mmp: bool,
}

/// Features that affect only the superblock.
const PLAIN_ON: [Feature; 13] = [
    Feature::Compat(Compat::EXT_ATTR),
    Feature::Compat(Compat::DIR_INDEX),
    Feature::Compat(Compat::STABLE_INODES),
    Feature::Incompat(Incompat::EXTENTS),
    Feature::Incompat(Incompat::FLEX_BG),
    Feature::Incompat(Incompat::EA_INODE),
    Feature::Incompat(Incompat::LARGEDIR),
    Feature::Incompat(Incompat::ENCRYPT),
    Feature::Incompat(Incompat::CASEFOLD),
    Feature::RoCompat(RoCompat::VERITY),
    Feature::RoCompat(RoCompat::READONLY),
    Feature::RoCompat(RoCompat::DIR_NLINK),
    Feature::RoCompat(RoCompat::EXTRA_ISIZE),
];
/// The same, for features that kernels enable by themselves.
const COUNTS_ON: [Feature; 2] =
    [Feature::RoCompat(RoCompat::LARGE_FILE), Feature::RoCompat(RoCompat::HUGE_FILE)];
/// Features that need more than the superblock when they are enabled or disabled.
const BUILT: [Feature; 9] = [
    Feature::Compat(Compat::HAS_JOURNAL),
    Feature::Compat(Compat::ORPHAN_FILE),
    Feature::Compat(Compat::FAST_COMMIT),
    Feature::Incompat(Incompat::MMP),
    Feature::Incompat(Incompat::CSUM_SEED),
    Feature::RoCompat(RoCompat::QUOTA),
    Feature::RoCompat(RoCompat::PROJECT),
    Feature::RoCompat(RoCompat::METADATA_CSUM),
    Feature::RoCompat(RoCompat::GDT_CSUM),
];
/// Features that need more only when they are enabled.
const BUILT_ON: [Feature; 2] =
    [Feature::Incompat(Incompat::FILETYPE), Feature::RoCompat(RoCompat::SPARSE_SUPER)];
/// Features that can be disabled if nothing in the image needs them, or if the blocks that they reserve are given up.
const BUILT_OFF: [Feature; 6] = [
    Feature::Compat(Compat::RESIZE_INODE),
    Feature::Incompat(Incompat::CASEFOLD),
    Feature::RoCompat(RoCompat::LARGE_FILE),
    Feature::RoCompat(RoCompat::HUGE_FILE),
    Feature::RoCompat(RoCompat::DIR_NLINK),
    Feature::RoCompat(RoCompat::EXTRA_ISIZE),
];

/// Returns the reason why a feature cannot be enabled or disabled.
fn refusal(feature: Feature, is_on: bool) -> &'static str {
    match feature {
        Feature::Incompat(Incompat::BIT64) => "all group descriptors would have to be moved",
        Feature::Incompat(Incompat::META_BG) => "group descriptors would have to be moved",
        Feature::Compat(Compat::DIR_INDEX) => "all directories would have to be rewritten in place",
        Feature::RoCompat(RoCompat::BIGALLOC) => "bitmaps count blocks or clusters from creation",
        Feature::Incompat(Incompat::JOURNAL_DEV) => "the device would no longer be a file system",
        _ if is_on => "its structures can be created only with the file system",
        _ => "structures that use it could no longer be found",
    }
}

/// Features before and after a request, with all consequences.
#[derive(Clone, Debug)]
pub(super) struct FeatureChange {
    pub(super) old: Features,
    pub(super) new: Features,
    /// State of each kind of quota before and after.
    pub(super) quotas: [(bool, bool); 3],
}

impl FeatureChange {
    /// Determines the result of a request.
    ///
    /// # Errors
    /// `Unsupported` for a feature that cannot change; `Invalid` for features that need others.
    pub(super) fn of(sb: &Superblock, request: &Request) -> Result<Self> {
        let (old, raw) = (sb.features, &sb.raw);
        let mut new = old;
        let mut wanted = request.quotas;
        let mut asks_for_quota = wanted.contains(&Some(true));
        for &(feature, is_on) in &request.features {
            let mut changed = new;
            changed.set(feature, is_on);
            if changed == new && !is_quota(feature) {
                continue;
            }
            may_change(feature, is_on)?;
            new = changed;
            match (feature, is_on) {
                (Feature::RoCompat(RoCompat::QUOTA), true) => asks_for_quota = true,
                (Feature::RoCompat(RoCompat::QUOTA), false) => wanted = [Some(false); 3],
                (Feature::RoCompat(RoCompat::PROJECT), _) => wanted[2] = Some(is_on),
                (Feature::RoCompat(RoCompat::METADATA_CSUM), false) => {
                    // Descriptors still need checksums, because some groups may be uninitialised.
                    new.ro_compat.insert(RoCompat::GDT_CSUM);
                    new.incompat.remove(Incompat::CSUM_SEED);
                }
                (Feature::Compat(Compat::HAS_JOURNAL), false) => {
                    // The orphan file requires a journal.
                    new.compat.remove(Compat::ORPHAN_FILE);
                }
                _ => {}
            }
        }
        if request.orphan_blocks.is_some() {
            new.compat.insert(Compat::ORPHAN_FILE);
        }
        if request.encoding_flags.is_some() {
            new.incompat.insert(Incompat::CASEFOLD);
        }
        if new.metadata_csum() {
            new.ro_compat.remove(RoCompat::GDT_CSUM);
        }
        let numbers = [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum];
        let had = numbers.map(|ino| old.ro_compat(RoCompat::QUOTA) && ino != 0);
        let asks_none = wanted == [None; 3] || wanted == [None, None, Some(false)];
        if asks_for_quota && asks_none && !had[0] && !had[1] {
            (wanted[0], wanted[1]) = (Some(true), Some(true));
        }
        let quotas = std::array::from_fn(|kind| (had[kind], wanted[kind].unwrap_or(had[kind])));
        new.ro_compat.set(RoCompat::QUOTA, quotas.iter().any(|(_, has)| *has));
        let keeps_projects = new.ro_compat(RoCompat::PROJECT) && !had[2] && wanted[2].is_none();
        new.ro_compat.set(RoCompat::PROJECT, quotas[2].1 || keeps_projects);
        let target = Self { old, new, quotas };
        target.check(sb)?;
        Ok(target)
    }

    fn check(&self, sb: &Superblock) -> Result<()> {
        let (old, new) = (&self.old, &self.new);
        let has_journal = new.compat(Compat::HAS_JOURNAL);
        if new.compat(Compat::ORPHAN_FILE) && !has_journal && !old.compat(Compat::ORPHAN_FILE) {
            return Err(Error::Invalid(
                "orphan_file feature can be set only for filesystems with journal.",
            ));
        }
        let comes = |feature| new.ro_compat(feature) && !old.ro_compat(feature);
        if comes(RoCompat::PROJECT) && usize::from(sb.inode_size) <= GOOD_OLD_INODE_SIZE {
            return Err(Error::Invalid("Cannot enable project feature; inode size too small."));
        }
        if new.incompat(Incompat::CSUM_SEED) && !new.metadata_csum() {
            return Err(Error::Invalid("-O metadata_csum_seed: needs metadata_csum"));
        }
        let folds = new.incompat(Incompat::CASEFOLD) && !old.incompat(Incompat::CASEFOLD);
        if folds && new.incompat(Incompat::ENCRYPT) && old.incompat(Incompat::ENCRYPT) {
            return Err(Error::Invalid("casefold cannot be added to a file system with encrypt"));
        }
        Ok(())
    }

    /// Returns whether a compatible feature is newly enabled or disabled.
    pub(super) fn turns(&self, feature: Compat, is_on: bool) -> bool {
        self.new.compat(feature) == is_on && self.old.compat(feature) != is_on
    }

    /// Returns whether an incompatible feature is newly enabled or disabled.
    pub(super) fn turns_incompat(&self, feature: Incompat, is_on: bool) -> bool {
        self.new.incompat(feature) == is_on && self.old.incompat(feature) != is_on
    }

    /// Returns whether a read-only-compatible feature is newly enabled or disabled.
    pub(super) fn turns_ro(&self, feature: RoCompat, is_on: bool) -> bool {
        self.new.ro_compat(feature) == is_on && self.old.ro_compat(feature) != is_on
    }

    /// Sets the features and their fields, including the UUID.
    pub(super) fn apply(&self, request: &Request, raw: &mut RawSuperblock) {
        let uuid_before = raw.uuid;
        raw.set_features(&self.new);
        if let Some(uuid) = request.uuid {
            raw.uuid = uuid;
        }
        if self.turns_incompat(Incompat::CSUM_SEED, true) {
            // Existing checksums stay valid whatever the UUID becomes.
            raw.checksum_seed = file_system_seed(&uuid_before).into();
        } else if !self.new.incompat(Incompat::CSUM_SEED) {
            raw.checksum_seed = 0.into();
        }
        if self.turns_ro(RoCompat::METADATA_CSUM, true) {
            raw.checksum_type = CHECKSUM_TYPE_CRC32C;
        } else if !self.new.metadata_csum() {
            raw.checksum_type = 0;
            raw.checksum = 0.into();
        }
        if self.turns_incompat(Incompat::ENCRYPT, true) {
            raw.encrypt_algos = ENCRYPTION_ALGORITHMS;
        }
        if self.turns_incompat(Incompat::CASEFOLD, true) {
            raw.encoding = ENCODING_UTF8_12_1.into();
            raw.encoding_flags = 0.into();
        } else if self.turns_incompat(Incompat::CASEFOLD, false) {
            raw.encoding = 0.into();
            raw.encoding_flags = 0.into();
        }
        if let Some(flags) = request.encoding_flags {
            raw.encoding_flags = flags.into();
        }
        if self.turns_incompat(Incompat::MMP, true) && raw.mmp_interval == 0 {
            raw.mmp_interval = MMP_INTERVAL.into();
        }
        if self.turns_incompat(Incompat::MMP, false) {
            raw.mmp_block = 0.into();
        }
    }
}

/// Quota features depend on the quota files, not on the previous features.
fn is_quota(feature: Feature) -> bool {
    matches!(feature, Feature::RoCompat(RoCompat::QUOTA | RoCompat::PROJECT))
}

/// Returns whether a feature can be enabled (`is_on`) or disabled, on images that meet its conditions.
pub fn can_change(feature: Feature, is_on: bool) -> bool {
    BUILT.contains(&feature)
        || is_on && [&PLAIN_ON[..], &COUNTS_ON, &BUILT_ON].iter().any(|l| l.contains(&feature))
        || !is_on && BUILT_OFF.contains(&feature)
        || !is_on && feature == Feature::RoCompat(RoCompat::READONLY)
}

fn may_change(feature: Feature, is_on: bool) -> Result<()> {
    if can_change(feature, is_on) {
        return Ok(());
    }
    let mut only = Features::default();
    only.set(feature, true);
    let (name, sign) = (only.names().join(","), if is_on { "" } else { "^" });
    Err(Error::unsupported(
        format!("-O {sign}{name}: {}", refusal(feature, is_on)),
        "create a file system with other features with diskwright convert",
    ))
}
