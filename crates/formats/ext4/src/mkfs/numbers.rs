//! Parameters of a new file system: groups, inodes, blocks reserved for growth. They are stored in a superblock, which
//! then passes the same checks as any other.

use vfs::{Error, Result};

use super::options::{InodeCount, Options};
use super::tuning::{Tuning, bits_of_group};
use crate::format::checksum;
use crate::format::features::{Compat, Features, Incompat, RoCompat};
use crate::format::geometry::is_sparse_backup;
use crate::format::superblock::{self, RawSuperblock, Superblock};

/// Minimum size of the last group beyond its own metadata, in blocks. A smaller group is omitted.
const LAST_GROUP_SLACK: u64 = 50;
/// Factor by which a file system may grow with `resize_inode`.
const GROWTH: u64 = 1024;
/// Maximum number of blocks with 32-bit block numbers.
const BLOCKS_MAX_32: u64 = u32::MAX as u64;
/// Minimum number of inodes per group. With fewer, the reserved ones and `lost+found` would be in several groups.
const INODES_PER_GROUP_MIN: u64 = 16;
/// Minimum number of blocks of a file system with a journal by default.
const JOURNAL_FROM_BLOCKS: u64 = 2048;
/// Interval of time-based checks in seconds: 180 days.
const CHECK_INTERVAL: u32 = 180 * 24 * 3600;
/// Minimum number of mounts between checks. Up to the same number is added, derived from the UUID, so that not all
/// file systems of a machine are checked at the same boot.
const CHECK_MOUNTS: u16 = 20;
/// `s_encrypt_algos` of a new file system: AES-256-XTS for contents, AES-256-CTS for names.
const ENCRYPT_ALGOS: [u8; 2] = [1, 4];
/// Size of the fields past the first 128 bytes that every inode reserves.
const EXTRA_ISIZE: u16 = 32;

/// Parameters that depend on each other.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    blocks: u64,
    groups: u64,
    inodes_per_group: u64,
    gdt_blocks: u64,
    reserved_gdt_blocks: u64,
}

/// Parameters that stay fixed while the others are determined.
struct FixedParameters<'a> {
    options: &'a Options,
    features: Features,
    block_size: u64,
    desc_size: u64,
    first_data_block: u64,
    blocks_per_group: u64,
    /// Number of blocks of a cluster: 1 without `bigalloc`.
    cluster_blocks: u64,
}

/// Returns the superblock of the file system to create. The counts of free blocks and inodes are still 0.
pub(super) fn superblock(options: &Options) -> Result<Superblock> {
    check(options)?;
    let block_size = u64::from(options.checked_block_size()?);
    let mut features = options.resolved_features()?;
    let tuning = &options.tuning;
    tuning.check(&features)?;
    let is_clustered = features.ro_compat(RoCompat::BIGALLOC);
    let cluster_blocks = if is_clustered { tuning.cluster_blocks(block_size)? } else { 1 };
    // An incomplete cluster at the end of the device is omitted.
    let blocks = options.size_bytes / block_size / cluster_blocks * cluster_blocks;
    settle_by_size(options, &mut features, blocks)?;
    if tuning.resize_blocks.is_some_and(|most| most <= blocks) {
        return Err(Error::Invalid("the block count to grow to must exceed the block count"));
    }
    let shape = FixedParameters {
        options,
        features,
        block_size,
        desc_size: tuning.descriptor_bytes(&features)?,
        first_data_block: u64::from(block_size == 1024 && !is_clustered),
        blocks_per_group: tuning.blocks_per_group(block_size)? * cluster_blocks,
        cluster_blocks,
    };
    if u64::from(options.inode_size) > block_size {
        return Err(Error::Invalid("an inode must not be larger than a block"));
    }
    let numbers = shape.settle(blocks)?;
    let raw = shape.raw_superblock(&numbers)?;
    let bytes = zerocopy::transmute_ref!(&raw);
    Superblock::parse(bytes, options.size_bytes)
}

fn check(options: &Options) -> Result<()> {
    let size = options.inode_size;
    let problem = if !size.is_power_of_two() || size < 128 {
        "the inode size must be a power of two, 128 bytes or more"
    } else if options.label.len() > 16 {
        "a label has at most 16 bytes"
    } else if options.last_mounted.len() > 64 {
        "the last mount point has at most 64 bytes"
    } else if !(0.0..=50.0).contains(&options.reserved_percent) {
        "at most 50 percent of the blocks can be reserved"
    } else if options.inodes == InodeCount::PerBytes(0) {
        "the bytes-per-inode ratio must not be 0"
    } else {
        return Ok(());
    };
    Err(Error::Invalid(problem))
}

/// Adjusts features that depend on the number of blocks.
fn settle_by_size(options: &Options, features: &mut Features, blocks: u64) -> Result<()> {
    let is_default = options.journal_bytes.is_none() && options.external_journal.is_none();
    if blocks < JOURNAL_FROM_BLOCKS && is_default {
        // mke2fs also omits the journal and reports it. Orphans need a journal.
        features.compat.remove(Compat::HAS_JOURNAL | Compat::ORPHAN_FILE);
    }
    if blocks > BLOCKS_MAX_32 {
        if !features.incompat(Incompat::BIT64) {
            return Err(Error::Invalid("more than 4,294,967,295 blocks need 64bit"));
        }
        features.compat.remove(Compat::RESIZE_INODE);
    }
    Ok(())
}

impl FixedParameters<'_> {
    /// Determines the parameters, and omits a last group that is too short to be useful.
    fn settle(&self, mut blocks: u64) -> Result<Numbers> {
        loop {
            if blocks <= self.first_data_block {
                return Err(Error::NoSpace);
            }
            let numbers = self.numbers(blocks)?;
            let in_group_0 = 2 + numbers.gdt_blocks;
            if in_group_0 > self.blocks_per_group && !self.features.incompat(Incompat::META_BG) {
                return Err(Error::Invalid(
                    "too many block groups to describe; use larger blocks or meta_bg",
                ));
            }
            let last_group = (blocks - self.first_data_block) % self.blocks_per_group;
            let overhead = self.last_group_overhead(&numbers);
            if overhead >= self.blocks_per_group {
                return Err(Error::Invalid("the inode tables do not fit; use fewer inodes"));
            }
            if last_group == 0 || last_group >= overhead + LAST_GROUP_SLACK {
                return Ok(numbers);
            }
            if numbers.groups > 1 {
                blocks -= last_group;
            } else if last_group < overhead {
                return Err(Error::NoSpace);
            } else {
                return Ok(numbers);
            }
        }
    }

    fn numbers(&self, blocks: u64) -> Result<Numbers> {
        let groups = (blocks - self.first_data_block).div_ceil(self.blocks_per_group);
        let gdt_blocks = groups.div_ceil(self.block_size / self.desc_size);
        Ok(Numbers {
            blocks,
            groups,
            inodes_per_group: self.inodes_per_group(groups)?,
            gdt_blocks,
            reserved_gdt_blocks: self.reserved_gdt_blocks(blocks, gdt_blocks),
        })
    }

    /// Returns the number of inodes per group: at least as many as requested, filling whole blocks of the table, a
    /// multiple of 8.
    fn inodes_per_group(&self, groups: u64) -> Result<u64> {
        let max_per_group = bits_of_group(self.block_size);
        let total = match self.options.inodes {
            InodeCount::PerBytes(ratio) => {
                let bytes = self.options.size_bytes / self.block_size * self.block_size;
                (bytes / ratio).min(u64::from(u32::MAX)).min(groups * max_per_group)
            }
            InodeCount::Count(count) => u64::from(count),
        };
        let per_block = self.block_size / u64::from(self.options.inode_size);
        let per_block = match self.options.inodes {
            // Rounding down to a multiple of 8 could yield fewer than the requested number.
            InodeCount::Count(_) => per_block.max(8),
            InodeCount::PerBytes(_) => per_block,
        };
        let wanted = total.div_ceil(groups).max(INODES_PER_GROUP_MIN);
        // A block contains 1 to 32 inodes, a power of two, so rounding to both keeps a multiple of 8.
        let rounded = wanted.next_multiple_of(per_block);
        // The maximum of large blocks need not fill whole blocks.
        let most = max_per_group / per_block * per_block;
        let per_group = if wanted <= max_per_group { rounded.min(most) } else { rounded };
        let per_group = if per_group % 8 == 0 { per_group } else { per_group / 8 * 8 };
        let per_group = per_group.max(INODES_PER_GROUP_MIN);
        if per_group > max_per_group || per_group * groups > u64::from(u32::MAX) {
            return Err(Error::Invalid("more inodes than the block groups can hold"));
        }
        Ok(per_group)
    }

    /// Returns the number of blocks to reserve after the descriptor table, so that it can grow to 1024 times the
    /// blocks.
    fn reserved_gdt_blocks(&self, blocks: u64, gdt_blocks: u64) -> u64 {
        if !self.features.compat(Compat::RESIZE_INODE) {
            return 0;
        }
        let reserved = |blocks_max: u64| {
            let blocks_max = blocks_max.min(BLOCKS_MAX_32) - self.first_data_block;
            let groups_max = blocks_max.div_ceil(self.blocks_per_group);
            let gdt_blocks_max = groups_max.div_ceil(self.block_size / self.desc_size);
            gdt_blocks_max.saturating_sub(gdt_blocks)
        };
        // mke2fs uses the default where the size asked for needs no blocks. The feature requires some.
        let asked = self.options.tuning.resize_blocks.map(reserved).filter(|count| *count > 0);
        let count = asked.unwrap_or_else(|| reserved(blocks.saturating_mul(GROWTH)));
        // One indirect block of the resize inode must contain all their numbers.
        count.min(self.block_size / 4)
    }

    /// Returns the number of metadata blocks of the last group.
    fn last_group_overhead(&self, numbers: &Numbers) -> u64 {
        let table = numbers.inodes_per_group * u64::from(self.options.inode_size);
        let mut overhead = 2 + table.div_ceil(self.block_size);
        if self.may_have_backup(numbers.groups - 1) {
            overhead += 1 + numbers.reserved_gdt_blocks;
            let meta_bg = self.features.incompat(Incompat::META_BG);
            overhead += if meta_bg { 1 } else { numbers.gdt_blocks };
        }
        overhead
    }

    /// Returns whether the last group may start with a copy of the superblock and the descriptors.
    fn may_have_backup(&self, last: u64) -> bool {
        !self.features.ro_compat(RoCompat::SPARSE_SUPER)
            || self.features.compat(Compat::SPARSE_SUPER2)
            || u32::try_from(last).is_ok_and(is_sparse_backup)
    }

    fn raw_superblock(&self, numbers: &Numbers) -> Result<RawSuperblock> {
        let options = self.options;
        let mut raw = RawSuperblock::zeroed();
        let Ok(inodes) = u32::try_from(numbers.inodes_per_group * numbers.groups) else {
            return Err(Error::Invalid("more than 4,294,967,295 inodes"));
        };
        raw.inodes_count = inodes.into();
        (raw.blocks_count_lo, raw.blocks_count_hi) = superblock::split(numbers.blocks);
        // If the last group is omitted, mke2fs reduces the count, which is rounded already.
        let asked = options.size_bytes / self.block_size / self.cluster_blocks;
        let asked = (asked * self.cluster_blocks).max(1);
        let reserved = (asked as f64 * options.reserved_percent / 100.0) as u64;
        let reserved =
            (u128::from(reserved) * u128::from(numbers.blocks) / u128::from(asked)) as u64;
        (raw.r_blocks_count_lo, raw.r_blocks_count_hi) = superblock::split(reserved);
        raw.first_data_block = (self.first_data_block as u32).into();
        raw.log_block_size = (self.block_size.ilog2() - 10).into();
        raw.log_cluster_size = (raw.log_block_size.get() + self.cluster_blocks.ilog2()).into();
        raw.blocks_per_group = (self.blocks_per_group as u32).into();
        raw.clusters_per_group = ((self.blocks_per_group / self.cluster_blocks) as u32).into();
        raw.inodes_per_group = (numbers.inodes_per_group as u32).into();
        raw.inode_size = options.inode_size.into();
        raw.reserved_gdt_blocks = (numbers.reserved_gdt_blocks as u16).into();
        if self.desc_size > 32 {
            raw.desc_size = (self.desc_size as u16).into();
        }
        if self.features.incompat(Incompat::FLEX_BG) {
            raw.log_groups_per_flex = options.tuning.flex_groups.ilog2() as u8;
        }
        if self.features.compat(Compat::SPARSE_SUPER2) && numbers.groups > 1 {
            let last = (numbers.groups - 1) as u32;
            let backups = options.tuning.backups;
            let first = u32::from(backups > 0);
            raw.backup_bgs =
                [first, if last > 1 && backups > 1 { last } else { 0 }].map(Into::into);
        }
        raw.set_features(&self.features);
        set_identity(&mut raw, options, &self.features);
        set_times(&mut raw, options.time.sec);
        raw.seal();
        Ok(raw)
    }
}

/// Sets the fields that do not depend on the size.
fn set_identity(raw: &mut RawSuperblock, options: &Options, features: &Features) {
    raw.magic = superblock::MAGIC.into();
    raw.rev_level = 1.into();
    raw.state = superblock::STATE_VALID.into();
    raw.max_mnt_count = u16::MAX.into();
    raw.first_ino = superblock::FIRST_INO_REV0.into();
    raw.uuid = options.uuid;
    raw.volume_name[..options.label.len()].copy_from_slice(&options.label);
    raw.last_mounted[..options.last_mounted.len()].copy_from_slice(&options.last_mounted);
    raw.hash_seed = options.hash_seed;
    raw.flags = superblock::FLAG_SIGNED_HASH.into();
    set_tuning(raw, &options.tuning, features);
    if options.inode_size > 128 {
        raw.min_extra_isize = EXTRA_ISIZE.into();
        raw.want_extra_isize = EXTRA_ISIZE.into();
    }
    if features.metadata_csum() {
        raw.checksum_type = superblock::CHECKSUM_TYPE_CRC32C;
    }
    if features.incompat(Incompat::CSUM_SEED) {
        raw.checksum_seed = checksum::file_system_seed(&options.uuid).into();
    }
}

/// Sets the fields about how the file system is used.
fn set_tuning(raw: &mut RawSuperblock, tuning: &Tuning, features: &Features) {
    raw.errors = tuning.errors.into();
    raw.def_hash_version = tuning.hash_version;
    raw.default_mount_opts = tuning.mount_options.into();
    raw.raid_stride = tuning.stride.into();
    raw.raid_stripe_width = tuning.stripe_width.into();
    if tuning.is_test {
        raw.flags = (raw.flags.get() | superblock::FLAG_TEST).into();
    }
    if tuning.is_checked_periodically {
        let jitter = raw.uuid.iter().map(|byte| u16::from(*byte)).sum::<u16>() % CHECK_MOUNTS;
        raw.max_mnt_count = (CHECK_MOUNTS + jitter).into();
        raw.checkinterval = CHECK_INTERVAL.into();
    }
    if features.incompat(Incompat::CASEFOLD) {
        raw.encoding = tuning.encoding.number().into();
        raw.encoding_flags = u16::from(tuning.is_encoding_strict).into();
    }
    if features.incompat(Incompat::ENCRYPT) {
        raw.encrypt_algos[..ENCRYPT_ALGOS.len()].copy_from_slice(&ENCRYPT_ALGOS);
    }
}

fn set_times(raw: &mut RawSuperblock, sec: i64) {
    raw.set_wtime(sec);
    (raw.mkfs_time, raw.mkfs_time_hi) = superblock::split_time(sec);
    (raw.lastcheck, raw.lastcheck_hi) = superblock::split_time(sec);
}
