//! Superblock of a journal device, which has a journal but no file system.
//!
//! It has the form of a file system's superblock with the feature `journal_dev`. The journal superblock is in the block
//! after it. Journal blocks are numbered from the start of the device, so the log starts after both. Several file
//! systems could share the journal by the format; kernels and e2fsck refuse more than one.

use vfs::{Corruption, Error, Result, Timestamp};

use super::features::{Features, Incompat, RoCompat};
use super::jbd2::{BLOCKS_MIN, RawJournalSuperblock};
use super::superblock::{
    CHECKSUM_TYPE_CRC32C, CREATOR_OS_LINUX, FIRST_INO_REV0, MAGIC, RawSuperblock, STATE_VALID,
    SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, split_time,
};

const STRUCTURE: &str = "journal device";
/// Maximum `s_log_block_size`: 64 KiB blocks.
const LOG_BLOCK_SIZE_MAX: u32 = 6;
/// `s_errors`: continue after errors.
const ERRORS_CONTINUE: u16 = 1;
/// `s_default_mount_opts`, as mke2fs sets it: `user_xattr` and `acl`.
const MOUNT_OPTIONS: u32 = 0xc;
/// Default `s_inode_size`, `s_min_extra_isize` and hash version. A journal device has no inodes.
const INODE_SIZE: u16 = 256;
const EXTRA_ISIZE: u16 = 32;
const HALF_MD4: u8 = 1;

/// Options of a new journal device.
#[derive(Clone, Debug)]
pub struct JournalDeviceOptions {
    /// Size of the device in bytes.
    pub size_bytes: u64,
    /// Block size in bytes, which is also that of the file system.
    pub block_size: u32,
    /// UUID of the journal.
    pub uuid: [u8; 16],
    /// Label, up to 16 bytes.
    pub label: Vec<u8>,
    /// Hash seed. It has no use.
    pub hash_seed: [u8; 16],
    /// True if the superblock has a checksum (`metadata_csum`).
    pub has_checksum: bool,
    /// Time of creation.
    pub time: Timestamp,
}

/// A journal device whose superblock is valid.
#[derive(Clone, Debug)]
pub struct JournalDevice {
    /// Raw superblock.
    pub raw: RawSuperblock,
    /// Base-2 logarithm of the block size in bytes: 10 to 16.
    pub block_size_log: u32,
    /// Number of blocks of the device, including those before the log.
    pub blocks: u32,
}

impl JournalDevice {
    /// Parses and checks the superblock of a device of `device_len` bytes.
    ///
    /// # Errors
    /// `Unsupported` if the device has no journal of this kind, or is shorter than the journal; `Corrupt` for the
    /// first invalid value.
    pub fn parse(raw: RawSuperblock, device_len: u64) -> Result<Self> {
        if !is_journal_device(&raw) {
            return Err(Error::unsupported(
                "a log device without the journal of an ext4 file system",
                "name the device that mke2fs -O journal_dev made for this image",
            ));
        }
        let damage = |field, expected: String, found: String| {
            Corruption::new(STRUCTURE, field).mismatch(expected, found)
        };
        if raw.features().metadata_csum() {
            let (computed, stored) = (raw.computed_checksum(), raw.checksum.get());
            if computed != stored {
                return Err(Corruption::checksum(STRUCTURE, computed, stored).into());
            }
        }
        let log = raw.log_block_size.get();
        if log > LOG_BLOCK_SIZE_MAX {
            let expected = format!("0 to {LOG_BLOCK_SIZE_MAX}");
            return Err(damage("log_block_size", expected, log.to_string()).into());
        }
        let (block_size_log, blocks) = (log + 10, raw.blocks_count_lo.get());
        if blocks < BLOCKS_MIN {
            let expected = format!("at least {BLOCKS_MIN}");
            return Err(damage("blocks_count", expected, blocks.to_string()).into());
        }
        let needed = u64::from(blocks) << block_size_log;
        if device_len < needed {
            return Err(Error::unsupported(
                format!("a log device of {device_len} bytes for a journal of {needed} bytes"),
                "name the device that contains the journal",
            ));
        }
        Ok(Self { raw, block_size_log, blocks })
    }

    /// Plans a new journal device that takes the whole device.
    ///
    /// # Errors
    /// `Invalid` for an impossible block size, or if the device is too small or too large.
    pub fn plan(options: &JournalDeviceOptions) -> Result<Self> {
        let size = options.block_size;
        if !size.is_power_of_two() || !(10..=10 + LOG_BLOCK_SIZE_MAX).contains(&size.ilog2()) {
            return Err(Error::Invalid("the block size must be a power of two from 1 to 64 KiB"));
        }
        let block_size_log = size.ilog2();
        let blocks = options.size_bytes >> block_size_log;
        if blocks < u64::from(BLOCKS_MIN) {
            return Err(Error::Invalid("a journal device must have at least 1024 blocks"));
        }
        let blocks = u32::try_from(blocks)
            .map_err(|_| Error::Invalid("a journal device must have less than 2^32 blocks"))?;
        let raw = superblock(options, block_size_log, blocks);
        Ok(Self { raw, block_size_log, blocks })
    }

    /// Returns the block size in bytes.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        1 << self.block_size_log
    }

    /// Returns the journal block that contains the journal superblock.
    #[must_use]
    pub fn journal_block(&self) -> u32 {
        (SUPERBLOCK_OFFSET >> self.block_size_log) as u32 + 1
    }

    /// Returns the superblock of a new journal without users.
    #[must_use]
    pub fn new_journal(&self) -> RawJournalSuperblock {
        let mut raw = RawJournalSuperblock::empty(self.block_size(), self.blocks, self.raw.uuid);
        raw.first = (self.journal_block() + 1).into();
        raw.nr_users = 0.into();
        raw
    }
}

/// Returns the UUID of a new journal for one file system.
#[must_use]
pub fn uuid_for(file_system: [u8; 16]) -> [u8; 16] {
    /// Bytes that contain the version and the variant.
    const KEPT: [usize; 2] = [6, 8];
    let mut uuid = file_system.map(|byte| byte ^ b'j');
    KEPT.iter().for_each(|&at| uuid[at] = file_system[at]);
    uuid
}

/// Returns whether a superblock is that of a journal device.
#[must_use]
pub fn is_journal_device(raw: &RawSuperblock) -> bool {
    raw.magic == MAGIC && raw.features().incompat(Incompat::JOURNAL_DEV)
}

fn superblock(options: &JournalDeviceOptions, block_size_log: u32, blocks: u32) -> RawSuperblock {
    let mut raw = RawSuperblock::zeroed();
    let per_group = 8u32 << block_size_log;
    raw.blocks_count_lo = blocks.into();
    raw.first_data_block = u32::from(block_size_log == 10).into();
    raw.log_block_size = (block_size_log - 10).into();
    raw.log_cluster_size = raw.log_block_size;
    raw.blocks_per_group = per_group.into();
    raw.clusters_per_group = per_group.into();
    raw.max_mnt_count = u16::MAX.into();
    raw.magic = MAGIC.into();
    raw.state = STATE_VALID.into();
    raw.errors = ERRORS_CONTINUE.into();
    raw.creator_os = CREATOR_OS_LINUX.into();
    raw.rev_level = 1.into();
    raw.first_ino = FIRST_INO_REV0.into();
    raw.inode_size = INODE_SIZE.into();
    raw.uuid = options.uuid;
    let len = options.label.len().min(raw.volume_name.len());
    raw.volume_name[..len].copy_from_slice(&options.label[..len]);
    raw.hash_seed = options.hash_seed;
    raw.def_hash_version = HALF_MD4;
    raw.default_mount_opts = MOUNT_OPTIONS.into();
    raw.min_extra_isize = EXTRA_ISIZE.into();
    raw.want_extra_isize = EXTRA_ISIZE.into();
    let mut features = Features { incompat: Incompat::JOURNAL_DEV, ..Features::default() };
    if options.has_checksum {
        features.ro_compat.insert(RoCompat::METADATA_CSUM);
        raw.checksum_type = CHECKSUM_TYPE_CRC32C;
    }
    raw.set_features(&features);
    let (low, high) = split_time(options.time.sec);
    (raw.mkfs_time, raw.mkfs_time_hi) = (low, high);
    (raw.wtime, raw.wtime_hi) = (low, high);
    (raw.lastcheck, raw.lastcheck_hi) = (low, high);
    raw.seal();
    raw
}

const _: () = assert!(SUPERBLOCK_OFFSET as usize + SUPERBLOCK_SIZE == 2048);

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    fn options(block_size: u32) -> JournalDeviceOptions {
        JournalDeviceOptions {
            size_bytes: 8 << 20,
            block_size,
            uuid: [0x11; 16],
            label: b"lab".to_vec(),
            hash_seed: [0; 16],
            has_checksum: true,
            time: Timestamp { sec: 0x6b09_ed8f, nsec: 0 },
        }
    }

    /// Compared with `mke2fs -O journal_dev,metadata_csum` of e2fsprogs 1.47.
    #[test]
    fn superblocks_are_those_of_mke2fs() {
        for (block_size, first, at) in [(1024, 3, 2), (2048, 2, 1), (4096, 2, 1)] {
            let device = JournalDevice::plan(&options(block_size)).unwrap();
            assert_eq!(device.journal_block(), at);
            let journal = device.new_journal();
            assert_eq!((journal.first.get(), journal.users_count()), (first, 0));
            let bytes = device.raw.as_bytes();
            assert_eq!(bytes[0x60..0x68], [8, 0, 0, 0, 0, 4, 0, 0]);
            assert_eq!(bytes[0x34..0x40], [0, 0, 0xff, 0xff, 0x53, 0xef, 1, 0, 1, 0, 0, 0]);
            let parsed = JournalDevice::parse(device.raw.clone(), 8 << 20).unwrap();
            assert_eq!(parsed.blocks, (8 << 20) / block_size);
        }
    }

    #[test]
    fn other_devices_and_damage_are_refused() {
        let sound = JournalDevice::plan(&options(1024)).unwrap().raw;
        let refusal = |change: &dyn Fn(&mut RawSuperblock), seals: bool| {
            let mut raw = sound.clone();
            change(&mut raw);
            if seals {
                raw.seal();
            }
            JournalDevice::parse(raw, 8 << 20).unwrap_err().to_string()
        };
        assert!(refusal(&|raw| raw.magic = 0.into(), true).contains("without the journal"));
        assert!(refusal(&|raw| raw.feature_incompat = 2.into(), true).contains("without"));
        assert!(refusal(&|raw| raw.volume_name[0] ^= 1, false).contains("checksum"));
        assert!(refusal(&|raw| raw.log_block_size = 7.into(), true).contains("log_block_size"));
        assert!(refusal(&|raw| raw.blocks_count_lo = 1023.into(), true).contains("at least"));
        assert!(refusal(&|raw| raw.blocks_count_lo = 8193.into(), true).contains("8389632 bytes"));
        assert!(
            JournalDevice::plan(&JournalDeviceOptions { size_bytes: 9, ..options(1024) }).is_err()
        );
        assert!(JournalDevice::plan(&options(512)).is_err());
    }
}
