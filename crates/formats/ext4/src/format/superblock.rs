//! The superblock: 1024 bytes at byte 1024 of the image, with backups in some groups.
//!
//! The values of a [`Superblock`] are consistent with each other and with the device. So calculations with them cannot
//! divide by zero, overflow or request excessive memory.

use vfs::hint::{Advice, Hint, Setting};
use vfs::{Corruption, Error, Result};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::address::Group;
use super::checksum;
use super::features::{Compat, Features, Incompat, RoCompat};

/// Byte offset of the superblock in the image.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// Size of the superblock in bytes.
pub const SUPERBLOCK_SIZE: usize = 1024;
/// `s_magic`.
pub const MAGIC: u16 = 0xef53;
/// `s_state`: cleanly unmounted.
pub const STATE_VALID: u16 = 1;
/// `s_state`: errors were found.
pub const STATE_ERROR: u16 = 2;
/// `s_flags`: directory hashes treat name bytes as signed.
pub(crate) const FLAG_SIGNED_HASH: u32 = 1;
/// `s_flags`: directory hashes treat name bytes as unsigned.
pub(crate) const FLAG_UNSIGNED_HASH: u32 = 2;
/// `s_flags`: drivers under development may use the file system.
pub(crate) const FLAG_TEST: u32 = 4;
/// `s_creator_os` of Linux.
pub(crate) const CREATOR_OS_LINUX: u32 = 0;
/// `s_creator_os` of the Hurd.
pub(crate) const CREATOR_OS_HURD: u32 = 1;
/// Inode size of revision 0, in bytes.
pub(crate) const INODE_SIZE_REV0: u16 = 128;
/// First inode that is not reserved, in revision 0 and by default.
pub(crate) const FIRST_INO_REV0: u32 = 11;
/// `s_checksum_type`: CRC-32C, the only defined type.
pub(crate) const CHECKSUM_TYPE_CRC32C: u8 = 1;

/// Maximum `s_log_block_size`: 64 KiB blocks.
const LOG_BLOCK_SIZE_MAX: u32 = 6;
/// Maximum cluster size, as a power of two of 1 KiB.
const LOG_CLUSTER_SIZE_MAX: u32 = 20;
/// Maximum number of groups that this build supports: 512 TiB with 4 KiB blocks.
const GROUPS_MAX: u64 = 1 << 22;
/// Range of `desc_size` with 64-bit descriptors, in bytes.
const DESC_SIZE_64BIT: std::ops::RangeInclusive<u16> = 64..=1024;

/// The superblock on disk. Field names as in the format document, without `s_`.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "names as in the format documentation")]
pub struct RawSuperblock {
    pub inodes_count: U32,
    pub blocks_count_lo: U32,
    pub r_blocks_count_lo: U32,
    pub free_blocks_count_lo: U32,
    pub free_inodes_count: U32,
    pub first_data_block: U32,
    pub log_block_size: U32,
    pub log_cluster_size: U32,
    pub blocks_per_group: U32,
    pub clusters_per_group: U32,
    pub inodes_per_group: U32,
    pub mtime: U32,
    pub wtime: U32,
    pub mnt_count: U16,
    pub max_mnt_count: U16,
    pub magic: U16,
    pub state: U16,
    pub errors: U16,
    pub minor_rev_level: U16,
    pub lastcheck: U32,
    pub checkinterval: U32,
    pub creator_os: U32,
    pub rev_level: U32,
    pub def_resuid: U16,
    pub def_resgid: U16,
    pub first_ino: U32,
    pub inode_size: U16,
    pub block_group_nr: U16,
    pub feature_compat: U32,
    pub feature_incompat: U32,
    pub feature_ro_compat: U32,
    pub uuid: [u8; 16],
    pub volume_name: [u8; 16],
    pub last_mounted: [u8; 64],
    pub algorithm_usage_bitmap: U32,
    pub prealloc_blocks: u8,
    pub prealloc_dir_blocks: u8,
    pub reserved_gdt_blocks: U16,
    pub journal_uuid: [u8; 16],
    pub journal_inum: U32,
    pub journal_dev: U32,
    pub last_orphan: U32,
    pub hash_seed: [u8; 16],
    pub def_hash_version: u8,
    pub jnl_backup_type: u8,
    pub desc_size: U16,
    pub default_mount_opts: U32,
    pub first_meta_bg: U32,
    pub mkfs_time: U32,
    pub jnl_blocks: [U32; 17],
    pub blocks_count_hi: U32,
    pub r_blocks_count_hi: U32,
    pub free_blocks_count_hi: U32,
    pub min_extra_isize: U16,
    pub want_extra_isize: U16,
    pub flags: U32,
    pub raid_stride: U16,
    pub mmp_interval: U16,
    pub mmp_block: U64,
    pub raid_stripe_width: U32,
    pub log_groups_per_flex: u8,
    pub checksum_type: u8,
    pub encryption_level: u8,
    pub reserved_pad: u8,
    pub kbytes_written: U64,
    pub snapshot_inum: U32,
    pub snapshot_id: U32,
    pub snapshot_r_blocks_count: U64,
    pub snapshot_list: U32,
    pub error_count: U32,
    pub first_error_time: U32,
    pub first_error_ino: U32,
    pub first_error_block: U64,
    pub first_error_func: [u8; 32],
    pub first_error_line: U32,
    pub last_error_time: U32,
    pub last_error_ino: U32,
    pub last_error_line: U32,
    pub last_error_block: U64,
    pub last_error_func: [u8; 32],
    pub mount_opts: [u8; 64],
    pub usr_quota_inum: U32,
    pub grp_quota_inum: U32,
    pub overhead_clusters: U32,
    pub backup_bgs: [U32; 2],
    pub encrypt_algos: [u8; 4],
    pub encrypt_pw_salt: [u8; 16],
    pub lpf_ino: U32,
    pub prj_quota_inum: U32,
    pub checksum_seed: U32,
    pub wtime_hi: u8,
    pub mtime_hi: u8,
    pub mkfs_time_hi: u8,
    pub lastcheck_hi: u8,
    pub first_error_time_hi: u8,
    pub last_error_time_hi: u8,
    pub first_error_errcode: u8,
    pub last_error_errcode: u8,
    pub encoding: U16,
    pub encoding_flags: U16,
    pub orphan_file_inum: U32,
    pub reserved: [U32; 94],
    pub checksum: U32,
}

const _: () = assert!(size_of::<RawSuperblock>() == SUPERBLOCK_SIZE);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, feature_compat) == 0x5c);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, blocks_count_hi) == 0x150);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, orphan_file_inum) == 0x280);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, checksum) == 0x3fc);

impl RawSuperblock {
    /// Returns a superblock of zeros.
    #[must_use]
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }

    /// Returns the feature sets.
    #[must_use]
    pub fn features(&self) -> Features {
        Features {
            compat: Compat::from_bits_retain(self.feature_compat.get()),
            incompat: Incompat::from_bits_retain(self.feature_incompat.get()),
            ro_compat: RoCompat::from_bits_retain(self.feature_ro_compat.get()),
        }
    }

    /// Replaces the feature sets.
    pub fn set_features(&mut self, features: &Features) {
        self.feature_compat = features.compat.bits().into();
        self.feature_incompat = features.incompat.bits().into();
        self.feature_ro_compat = features.ro_compat.bits().into();
    }

    /// Sets the number of free blocks.
    pub fn set_free_blocks(&mut self, blocks: u64) {
        (self.free_blocks_count_lo, self.free_blocks_count_hi) = split(blocks);
    }

    /// Returns the stored number of free blocks.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        self.join(self.free_blocks_count_lo, self.free_blocks_count_hi)
    }

    /// Returns the stored number of blocks reserved for privileged users.
    #[must_use]
    pub fn reserved_blocks(&self) -> u64 {
        self.join(self.r_blocks_count_lo, self.r_blocks_count_hi)
    }

    /// Returns the number of blocks of the file system.
    pub(crate) fn blocks_count(&self) -> u64 {
        self.join(self.blocks_count_lo, self.blocks_count_hi)
    }

    /// Sets the time of the last write in seconds since the epoch. 40 bits of it are stored.
    pub(crate) fn set_wtime(&mut self, sec: i64) {
        (self.wtime, self.wtime_hi) = split_time(sec);
    }

    /// Updates the checksum, if the file system has one.
    pub fn seal(&mut self) {
        if self.features().metadata_csum() {
            self.checksum = self.computed_checksum().into();
        }
    }

    pub(crate) fn computed_checksum(&self) -> u32 {
        let bytes = self.as_bytes();
        checksum::crc32c(u32::MAX, &bytes[..SUPERBLOCK_SIZE - size_of::<U32>()])
    }

    /// High halves are valid only with 64-bit block numbers.
    fn join(&self, lo: U32, hi: U32) -> u64 {
        let hi = if self.features().incompat(Incompat::BIT64) { hi.get() } else { 0 };
        u64::from(hi) << 32 | u64::from(lo.get())
    }
}

/// Verifies a superblock before it is changed: it must still be the one that was parsed.
///
/// # Errors
/// A wrong magic number or, with `metadata_csum`, a wrong checksum, with the value found.
pub(crate) fn verify(bytes: &[u8]) -> Result<(), Corruption> {
    let raw = checked_magic(bytes)?;
    let computed = raw.computed_checksum();
    if raw.features().metadata_csum() && raw.checksum != computed {
        return Err(Corruption::checksum("superblock", computed, raw.checksum.get()));
    }
    Ok(())
}

/// Returns `s_block_group_nr` of a backup in `group`, as mke2fs writes it: numbers that do not fit become 65,535.
#[must_use]
pub(crate) fn backup_number(group: Group) -> u16 {
    u16::try_from(group.0).unwrap_or(u16::MAX)
}

/// Returns whether `number` can be `s_block_group_nr` of a backup in `group`. Some programs write the low 16 bits of a number
/// that does not fit.
#[must_use]
pub(crate) fn is_backup_number(number: u16, group: Group) -> bool {
    number == backup_number(group) || number == group.0 as u16
}

fn checked_magic(bytes: &[u8]) -> Result<&RawSuperblock, Corruption> {
    let Ok(raw) = RawSuperblock::ref_from_bytes(bytes) else {
        return Err(Corruption::new("superblock", "truncated"));
    };
    if raw.magic != MAGIC {
        let found = format!("{:#06x}", raw.magic.get());
        let damage = Corruption::new("superblock", "magic number");
        return Err(damage.mismatch(format!("{MAGIC:#06x}"), found));
    }
    Ok(raw)
}

/// Updates the checksum of a superblock of `SUPERBLOCK_SIZE` bytes, if the file system has one.
pub(crate) fn seal(bytes: &mut [u8]) {
    if let Ok(raw) = RawSuperblock::mut_from_bytes(bytes) {
        raw.seal();
    }
}

/// Returns the low and high half of a block count.
pub(crate) fn split(count: u64) -> (U32, U32) {
    ((count as u32).into(), ((count >> 32) as u32).into())
}

/// Splits a time into the superblock's 32 and 8 bits.
pub(crate) fn split_time(sec: i64) -> (U32, u8) {
    ((sec as u32).into(), (sec >> 32) as u8)
}

/// A superblock whose values are consistent with each other and the device.
#[derive(Clone, Debug)]
pub struct Superblock {
    /// Raw superblock, which can be changed and written back.
    pub raw: RawSuperblock,
    /// The feature sets.
    pub features: Features,
    /// Base-2 logarithm of the block size in bytes: 10 to 16.
    pub block_size_log: u32,
    /// Base-2 logarithm of the blocks in a cluster; 0 without `bigalloc`.
    pub cluster_blocks_log: u32,
    /// Number of blocks of the file system.
    pub blocks_count: u64,
    /// Number of inodes of the file system: `inodes_per_group` times `groups_count`.
    pub inodes_count: u32,
    /// First block of group 0: 0 or 1.
    pub first_data_block: u32,
    /// Number of blocks of every group but the last.
    pub blocks_per_group: u32,
    /// Number of inodes of every group.
    pub inodes_per_group: u32,
    /// Number of block groups.
    pub groups_count: u32,
    /// Size of an inode in bytes: a power of two from 128 to the block size.
    pub inode_size: u16,
    /// Size of a group descriptor in bytes: a power of two from 32 to 1024.
    pub desc_size: u16,
    /// First inode that is not reserved.
    pub first_ino: u32,
    /// Seed of all metadata checksums.
    pub checksum_seed: u32,
}

impl Superblock {
    /// Parses and checks the superblock of a device of `device_len` bytes.
    ///
    /// # Errors
    /// `Unsupported` with the features that prevent reading; `Corrupt` with the first invalid value.
    pub fn parse(bytes: &[u8; SUPERBLOCK_SIZE], device_len: u64) -> Result<Self> {
        let raw =
            RawSuperblock::read_from_bytes(bytes).expect("the slice has the size of the structure");
        check_seal(&raw)?;
        Self::check(raw, device_len)
    }

    /// Like [`Self::parse`], without checking magic number and checksum.
    fn check(raw: RawSuperblock, device_len: u64) -> Result<Self> {
        let features = raw.features();
        check_identity(&raw, &features)?;
        let block_size_log = check_block_size(&raw)?;
        let cluster_blocks_log = check_clusters(&raw, &features, block_size_log)?;
        let inode_size = check_inode_size(&raw, block_size_log)?;
        let blocks_count = check_blocks(&raw, block_size_log, cluster_blocks_log, device_len)?;
        let sb = Self {
            block_size_log,
            cluster_blocks_log,
            blocks_count,
            inodes_count: raw.inodes_count.get(),
            first_data_block: raw.first_data_block.get(),
            blocks_per_group: raw.blocks_per_group.get(),
            inodes_per_group: raw.inodes_per_group.get(),
            groups_count: check_groups(&raw, blocks_count, block_size_log)?,
            inode_size,
            desc_size: check_desc_size(&raw, &features)?,
            first_ino: if raw.rev_level == 0 { FIRST_INO_REV0 } else { raw.first_ino.get() },
            checksum_seed: if features.incompat(Incompat::CSUM_SEED) {
                raw.checksum_seed.get()
            } else {
                checksum::file_system_seed(&raw.uuid)
            },
            features,
            raw,
        };
        check_inodes(&sb)?;
        check_descriptors(&sb)?;
        Ok(sb)
    }

    /// Returns the block size in bytes.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        1 << self.block_size_log
    }

    /// Returns the reason why this build must not write to the image, if any: the features that it does not maintain.
    #[must_use]
    pub fn read_only_because(&self) -> Option<String> {
        let names = self.features.unwritable();
        (!names.is_empty()).then(|| format!("writing is not supported with {}", names.join(", ")))
    }

    /// Returns whether the journal is on another device. A damaged superblock may name no journal at all.
    #[must_use]
    pub fn has_external_journal(&self) -> bool {
        self.features.compat(Compat::HAS_JOURNAL)
            && self.raw.journal_inum == 0
            && (self.raw.journal_dev != 0 || self.raw.journal_uuid != [0; 16])
    }

    /// Returns the label up to the first NUL.
    #[must_use]
    pub fn label(&self) -> &[u8] {
        let name = &self.raw.volume_name;
        let len = name.iter().position(|&b| b == 0).unwrap_or(name.len());
        &name[..len]
    }

    /// Returns whether the Hurd created the file system. In that case `i_osd1` and `i_osd2` have its layout, and
    /// directory entries may have no types.
    #[must_use]
    pub(crate) fn is_of_hurd(&self) -> bool {
        self.raw.creator_os == CREATOR_OS_HURD
    }

    /// Returns whether directory hashes treat name bytes as signed, unless the hash version specifies it.
    #[must_use]
    pub(crate) fn signed_hash(&self) -> bool {
        self.raw.flags.get() & FLAG_UNSIGNED_HASH == 0
    }
}

fn corrupt(field: &str, expected: impl std::fmt::Display, found: impl std::fmt::Display) -> Error {
    Corruption::new("superblock", field).mismatch(expected, found).into()
}

fn check_seal(raw: &RawSuperblock) -> Result<()> {
    if raw.magic != MAGIC {
        let (expected, found) = (format!("{MAGIC:#06x}"), format!("{:#06x}", raw.magic.get()));
        return Err(corrupt("magic number", expected, found));
    }
    // Check the checksum first: if it is wrong, the feature bits cannot be trusted.
    if raw.features().metadata_csum() {
        if raw.checksum_type != CHECKSUM_TYPE_CRC32C {
            return Err(corrupt("checksum type", CHECKSUM_TYPE_CRC32C, raw.checksum_type));
        }
        let computed = raw.computed_checksum();
        if raw.checksum != computed {
            let damage = Corruption::checksum("superblock", computed, raw.checksum.get());
            return Err(damage.into());
        }
    }
    Ok(())
}

fn check_identity(raw: &RawSuperblock, features: &Features) -> Result<()> {
    if raw.rev_level > 1 {
        return Err(Error::unsupported(
            format!("superblock revision {}", raw.rev_level),
            "only revisions 0 and 1 are supported",
        ));
    }
    if features.incompat(Incompat::JOURNAL_DEV) {
        return Err(Error::unsupported(
            format!("the device of an ext4 journal with the UUID {}", uuid_text(&raw.uuid)),
            Advice::before(
                "it contains no files; name the image, and this device with ",
                Hint::Use(Setting::LOG_DEVICE),
            ),
        ));
    }
    let names = features.unreadable();
    if names.is_empty() {
        return Ok(());
    }
    Err(Error::unsupported(
        format!("the image has features {}", names.join(", ")),
        "turn them off with tune2fs if possible, or use the kernel's ext4",
    ))
}

/// Returns a UUID in the usual notation.
pub(crate) fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

fn check_block_size(raw: &RawSuperblock) -> Result<u32> {
    let log = raw.log_block_size.get();
    if log > LOG_BLOCK_SIZE_MAX {
        return Err(corrupt("log_block_size", format!("0 to {LOG_BLOCK_SIZE_MAX}"), log));
    }
    Ok(log + 10)
}

/// Checks the cluster size and the blocks per group. Returns the logarithm of the blocks in a cluster.
fn check_clusters(raw: &RawSuperblock, features: &Features, block_size_log: u32) -> Result<u32> {
    let bits_per_block = 8u32 << block_size_log;
    let blocks_per_group = raw.blocks_per_group.get();
    let (ratio_log, clusters_per_group) = if features.ro_compat(RoCompat::BIGALLOC) {
        let log = raw.log_cluster_size.get();
        if !(block_size_log - 10..=LOG_CLUSTER_SIZE_MAX).contains(&log) {
            let range = format!("{} to {LOG_CLUSTER_SIZE_MAX}", block_size_log - 10);
            return Err(corrupt("log_cluster_size", range, log));
        }
        (log + 10 - block_size_log, raw.clusters_per_group.get())
    } else {
        (0, blocks_per_group)
    };
    if clusters_per_group == 0 || clusters_per_group % 8 != 0 || clusters_per_group > bits_per_block
    {
        let range = format!("a multiple of 8 up to {bits_per_block}");
        return Err(corrupt("clusters_per_group", range, clusters_per_group));
    }
    if u64::from(clusters_per_group) << ratio_log != u64::from(blocks_per_group) {
        let expected = u64::from(clusters_per_group) << ratio_log;
        return Err(corrupt("blocks_per_group", expected, blocks_per_group));
    }
    Ok(ratio_log)
}

fn check_inode_size(raw: &RawSuperblock, block_size_log: u32) -> Result<u16> {
    if raw.rev_level == 0 {
        return Ok(INODE_SIZE_REV0);
    }
    let size = raw.inode_size.get();
    if !size.is_power_of_two() || size < 128 || u32::from(size) > 1 << block_size_log {
        let range = format!("a power of two from 128 to {}", 1u32 << block_size_log);
        return Err(corrupt("inode_size", range, size));
    }
    Ok(size)
}

fn check_desc_size(raw: &RawSuperblock, features: &Features) -> Result<u16> {
    if !features.incompat(Incompat::BIT64) {
        return Ok(32);
    }
    let size = raw.desc_size.get();
    if !size.is_power_of_two() || !DESC_SIZE_64BIT.contains(&size) {
        return Err(corrupt("desc_size", "a power of two from 64 to 1024", size));
    }
    Ok(size)
}

fn check_blocks(
    raw: &RawSuperblock,
    block_size_log: u32,
    cluster_blocks_log: u32,
    device_len: u64,
) -> Result<u64> {
    let blocks = raw.join(raw.blocks_count_lo, raw.blocks_count_hi);
    let device_blocks = device_len >> block_size_log;
    if blocks > device_blocks {
        let expected = format!("at most {device_blocks}, the size of the device");
        return Err(corrupt("blocks_count", expected, blocks));
    }
    // The superblock itself is in block 1 if blocks are 1 KiB. Clusters start at block 0.
    let expected = u32::from(block_size_log == 10 && cluster_blocks_log == 0);
    let first = raw.first_data_block.get();
    if first != expected {
        return Err(corrupt("first_data_block", expected, first));
    }
    if blocks <= u64::from(first) {
        return Err(corrupt("blocks_count", format!("more than {first}"), blocks));
    }
    Ok(blocks)
}

fn check_groups(raw: &RawSuperblock, blocks: u64, block_size_log: u32) -> Result<u32> {
    let data_blocks = blocks - u64::from(raw.first_data_block.get());
    let groups = data_blocks.div_ceil(u64::from(raw.blocks_per_group.get()));
    if groups > GROUPS_MAX {
        return Err(Error::unsupported(
            format!("{groups} block groups of {} bytes", {
                u64::from(raw.blocks_per_group.get()) << block_size_log
            }),
            "the maximum of this program is 4,194,304 groups",
        ));
    }
    Ok(groups as u32)
}

fn check_inodes(sb: &Superblock) -> Result<()> {
    let inodes_per_block = sb.block_size() / u32::from(sb.inode_size);
    let bits_per_block = 8 * sb.block_size();
    let per_group = sb.inodes_per_group;
    if per_group < inodes_per_block || per_group > bits_per_block {
        let range = format!("{inodes_per_block} to {bits_per_block}");
        return Err(corrupt("inodes_per_group", range, per_group));
    }
    let total = u64::from(per_group) * u64::from(sb.groups_count);
    if total != u64::from(sb.inodes_count) {
        return Err(corrupt("inodes_count", total, sb.inodes_count));
    }
    if sb.first_ino < FIRST_INO_REV0 || sb.first_ino > sb.inodes_count {
        let range = format!("{FIRST_INO_REV0} to {}", sb.inodes_count);
        return Err(corrupt("first_ino", range, sb.first_ino));
    }
    let table_blocks = u64::from(per_group.div_ceil(inodes_per_block));
    let needed = (table_blocks + 2) * u64::from(sb.groups_count);
    if needed > sb.blocks_count {
        let expected = format!("at most {} blocks of inode tables and bitmaps", sb.blocks_count);
        return Err(corrupt("inodes_per_group", expected, needed));
    }
    Ok(())
}

/// Checks that the descriptor table fits into its group.
fn check_descriptors(sb: &Superblock) -> Result<()> {
    let per_block = sb.block_size() / u32::from(sb.desc_size);
    let table_blocks = sb.groups_count.div_ceil(per_block);
    let reserved = u32::from(sb.raw.reserved_gdt_blocks.get());
    if reserved > sb.block_size() / 4 {
        return Err(corrupt("reserved_gdt_blocks", sb.block_size() / 4, reserved));
    }
    let in_group_0 = if sb.features.incompat(Incompat::META_BG) {
        let first_meta = sb.raw.first_meta_bg.get();
        if first_meta > table_blocks {
            return Err(corrupt("first_meta_bg", format!("at most {table_blocks}"), first_meta));
        }
        first_meta
    } else {
        table_blocks
    };
    let group_0 = u64::from(sb.blocks_per_group).min(sb.blocks_count);
    let room = group_0.saturating_sub(2);
    if u64::from(in_group_0) > room {
        let expected = format!("a descriptor table of at most {room} blocks");
        return Err(corrupt("blocks_count", expected, in_group_0));
    }
    Ok(())
}
/// Verifies a superblock before it is sealed and written, with the rules for reading.
///
/// # Errors
/// The first invalid value, or features that this build would refuse to read.
pub(crate) fn verify_structure(bytes: &[u8]) -> Result<Superblock, Corruption> {
    let raw = checked_magic(bytes)?;
    Superblock::check(raw.clone(), u64::MAX).map_err(|error| match error {
        Error::Corrupt(fault) => fault,
        other => Corruption::new("superblock", other.to_string()),
    })
}
