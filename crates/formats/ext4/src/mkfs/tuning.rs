//! Rarely used settings of a new file system: placement of metadata, and how the file system is used.

use std::ops::RangeInclusive;

use vfs::{Error, Result};

use crate::format::features::{Compat, Features, Incompat, RoCompat};
use crate::format::mmp::INTERVAL_MAX;

/// Range of cluster sizes in bytes, as in mke2fs.
const CLUSTER_BYTES: RangeInclusive<u64> = 2048..=256 << 20;
/// Default number of blocks of a cluster.
const CLUSTER_BLOCKS_DEFAULT: u64 = 16;
/// Maximum number of blocks of a journal.
pub(super) const JOURNAL_BLOCKS_MAX: u64 = 10_240_000;
/// Minimum number of blocks of a group.
const GROUP_BLOCKS_MIN: u64 = 256;
/// Maximum number of blocks of an orphan file: kernels refuse to mount larger ones.
const ORPHAN_BLOCKS_MAX: u64 = 512;
/// Default size of the fast-commit area as a fraction of the journal, to which it is added.
const FAST_COMMIT_SHARE: u32 = 64;

/// Returns the maximum number of blocks, clusters or inodes of a group: a bit for each in one block. Counts of
/// descriptors without 64bit have 16 bits.
pub(super) fn bits_of_group(block_size: u64) -> u64 {
    const MAX: u64 = (1 << 16) - 8;
    (8 * block_size).min(MAX)
}

/// A position in the new file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The block with this number.
    Block(u64),
    /// The block that contains this byte.
    Byte(u64),
}

impl Position {
    /// Returns the number of the block.
    pub(crate) const fn block(self, block_size_log: u32) -> u64 {
        match self {
            Self::Block(block) => block,
            Self::Byte(byte) => byte >> block_size_log,
        }
    }
}

/// Encoding of names in case-insensitive directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8, Unicode 12.1.
    #[default]
    Utf8,
}

impl Encoding {
    /// Returns `s_encoding`.
    pub(super) const fn number(self) -> u16 {
        match self {
            Self::Utf8 => 1,
        }
    }
}

/// Rarely used settings. The defaults are those of mke2fs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// `s_errors`: 1 continues after an error, 2 remounts read-only, 3 panics.
    pub errors: u16,
    /// `s_default_mount_opts`.
    pub mount_options: u32,
    /// `s_def_hash_version`: 0 legacy, 1 half MD4, 2 TEA.
    pub hash_version: u8,
    /// True if checks are due after a number of mounts and after 180 days.
    pub is_checked_periodically: bool,
    /// `s_raid_stride`, in blocks.
    pub stride: u16,
    /// `s_raid_stripe_width`, in blocks.
    pub stripe_width: u32,
    /// True if drivers under development may use the file system.
    pub is_test: bool,
    /// Encoding of names, with `casefold`.
    pub encoding: Encoding,
    /// True if names that are invalid in the encoding are rejected.
    pub is_encoding_strict: bool,
    /// Number of groups whose bitmaps and inode tables are placed together, with `flex_bg`: a power of two.
    pub flex_groups: u32,
    /// True if the bitmaps and inode tables of all groups, and the journal, are placed at the start.
    pub is_packed: bool,
    /// Number of backup superblocks with `sparse_super2`: 0 to 2.
    pub backups: u8,
    /// Number of blocks for which reserved descriptor blocks suffice; by default 1024 times the blocks.
    pub resize_blocks: Option<u64>,
    /// Size of a cluster in bytes, with `bigalloc`; by default 16 blocks.
    pub cluster_bytes: Option<u64>,
    /// Number of blocks of a group, or of clusters with `bigalloc`; by default one for each bit of a block.
    pub group_blocks: Option<u64>,
    /// Start of the journal; by default in the middle.
    pub journal_at: Option<Position>,
    /// Size of the area for fast commits in bytes, with `fast_commit`; by default a 64th of the journal.
    pub fast_commit_bytes: Option<u64>,
    /// Size of group descriptors in bytes, with `64bit`: a power of two from 64 to 1024. By default 64.
    pub descriptor_bytes: Option<u16>,
    /// Size of the orphan file in bytes; by default it depends on the size of the file system.
    pub orphan_file_bytes: Option<u64>,
    /// Update interval of the MMP block in seconds, with `mmp`; by default 5.
    pub mmp_interval: Option<u16>,
    /// True if an empty inode is reserved for the project quota file and recorded in the superblock.
    pub has_project_quota: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            errors: 1,
            mount_options: 0xc,
            hash_version: 1,
            is_checked_periodically: false,
            stride: 0,
            stripe_width: 0,
            is_test: false,
            encoding: Encoding::default(),
            is_encoding_strict: false,
            flex_groups: 16,
            is_packed: false,
            backups: 2,
            resize_blocks: None,
            cluster_bytes: None,
            group_blocks: None,
            journal_at: None,
            fast_commit_bytes: None,
            descriptor_bytes: None,
            orphan_file_bytes: None,
            mmp_interval: None,
            has_project_quota: false,
        }
    }
}

impl Tuning {
    /// Checks the settings against each other and the features.
    pub(super) fn check(&self, features: &Features) -> Result<()> {
        let usual = Self::default();
        let has_flex = features.incompat(Incompat::FLEX_BG);
        let problem = if !(1..=3).contains(&self.errors) {
            "the error behaviour must be 1 to 3"
        } else if self.hash_version > 2 {
            "the directory hash must be legacy, half_md4 or tea"
        } else if !self.flex_groups.is_power_of_two() {
            "the flex group size must be a power of two"
        } else if !has_flex && self.flex_groups != usual.flex_groups {
            "a flex group size requires the feature flex_bg"
        } else if self.backups > 2 {
            "the number of backup superblocks with sparse_super2 must be 0, 1 or 2"
        } else if self.mmp_interval.is_some_and(|seconds| seconds > INTERVAL_MAX) {
            "the update interval of the MMP block must be at most 300 seconds"
        } else if self.cluster_bytes.is_some() && !features.ro_compat(RoCompat::BIGALLOC) {
            "a cluster size needs the feature bigalloc"
        } else if self.resize_blocks.is_some() && !features.compat(Compat::RESIZE_INODE) {
            "reserved descriptor blocks need the feature resize_inode"
        } else {
            return Ok(());
        };
        Err(Error::Invalid(problem))
    }

    /// Returns the number of blocks of a cluster, with `bigalloc`.
    pub(super) fn cluster_blocks(&self, block_size: u64) -> Result<u64> {
        let Some(bytes) = self.cluster_bytes else { return Ok(CLUSTER_BLOCKS_DEFAULT) };
        if !bytes.is_power_of_two() || !CLUSTER_BYTES.contains(&bytes) || bytes <= block_size {
            let problem = "the cluster size must be a power of two from 2 KiB to 256 MiB, larger \
                           than a block";
            return Err(Error::Invalid(problem));
        }
        Ok(bytes / block_size)
    }

    /// Returns the number of blocks of a group, or of clusters with `bigalloc`.
    pub(super) fn blocks_per_group(&self, block_size: u64) -> Result<u64> {
        let most = bits_of_group(block_size);
        let blocks = self.group_blocks.unwrap_or(most);
        if !(GROUP_BLOCKS_MIN..=most).contains(&blocks) || !blocks.is_multiple_of(8) {
            let problem = "the blocks per group must be a multiple of 8, at least 256 and at most \
                           the bits of a block";
            return Err(Error::Invalid(problem));
        }
        Ok(blocks)
    }

    /// Returns the size of group descriptors in bytes.
    pub(super) fn descriptor_bytes(&self, features: &Features) -> Result<u64> {
        let has_64bit = features.incompat(Incompat::BIT64);
        match self.descriptor_bytes {
            None => Ok(if has_64bit { 64 } else { 32 }),
            Some(_) if !has_64bit => Err(Error::Invalid("desc_size requires '-O 64bit'")),
            Some(bytes) if bytes.is_power_of_two() && (64..=1024).contains(&bytes) => {
                Ok(bytes.into())
            }
            Some(_) => Err(Error::Invalid(
                "the size of group descriptors must be a power of two from 64 to 1024",
            )),
        }
    }

    /// Returns the number of blocks of the fast-commit area after a journal of `journal` blocks.
    pub(super) fn fast_commit_blocks(&self, journal: u32, block_size_log: u32) -> Result<u32> {
        let Some(bytes) = self.fast_commit_bytes else { return Ok(journal / FAST_COMMIT_SHARE) };
        let blocks = bytes >> block_size_log;
        if blocks == 0 || blocks + u64::from(journal) > JOURNAL_BLOCKS_MAX {
            return Err(Error::Invalid("the size of the fast commit area is invalid"));
        }
        Ok(blocks as u32)
    }

    /// Returns the number of blocks of the orphan file in a file system of `blocks_count` blocks.
    pub(super) fn orphan_blocks(&self, blocks_count: u64, block_size_log: u32) -> Result<u64> {
        let Some(bytes) = self.orphan_file_bytes else {
            return Ok((blocks_count / 4096).clamp(32, ORPHAN_BLOCKS_MAX));
        };
        let blocks = bytes >> block_size_log;
        if !(1..=ORPHAN_BLOCKS_MAX).contains(&blocks) {
            return Err(Error::Invalid("the orphan file must have 1 to 512 blocks"));
        }
        Ok(blocks)
    }

    /// Returns the first block at which the journal may start, if one was requested.
    pub(super) fn journal_goal(&self, block_size_log: u32) -> Option<u64> {
        let given = self.journal_at.map(|position| position.block(block_size_log));
        given.or_else(|| self.is_packed.then_some(0))
    }
}
