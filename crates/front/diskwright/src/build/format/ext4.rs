//! Building ext2, ext3 and ext4.

use std::sync::Arc;

use disk::BlockDevice;
use ext4::mkfs::{self, Contents, FeatureChange, InodeCount, Layout};
use ext4::{Ext4, Ext4Core};
use vfs::{FileSystem, Ino};

use super::{Fresh, InodeRule, Inodes, Maker, Plan, feature_list};
use crate::build::estimate::{Estimate, Ext4Estimate};
use crate::build::{BuildError, BuildOptions, identity};

/// Block size if the image size is computed, in bytes. A trial counts blocks before the size is known, so the block
/// size must not depend on it.
const BLOCK_SIZE_AUTO: u32 = 4096;

pub(super) struct Ext4Maker<'a> {
    options: &'a BuildOptions,
    features: Vec<FeatureChange>,
    inode_size: Option<u16>,
}

impl<'a> Ext4Maker<'a> {
    pub(super) fn new(options: &'a BuildOptions) -> Result<Self, BuildError> {
        let mut list = feature_list(options);
        if !options.output.fs_verity.is_empty() {
            // Explicit feature options come later in the list, so they override this.
            list.insert_str(0, "+verity,");
        }
        if options.no_journal {
            list.push_str(",-has_journal");
        }
        let inode_size = options.inode_size.map(u16::try_from).transpose();
        let inode_size =
            inode_size.map_err(|_| vfs::Error::Invalid("the inode size is too large"))?;
        Ok(Self { options, features: FeatureChange::parse_list(&list)?, inode_size })
    }

    /// Returns the default block size, if it differs from that of mke2fs.
    fn block_size_unasked(&self) -> Option<u32> {
        // dm-verity devices have blocks of this size.
        let is_fixed = self.options.size.is_none() || self.options.output.verity.is_some();
        is_fixed.then_some(BLOCK_SIZE_AUTO)
    }

    fn mkfs_options(&self, size: u64, inodes: Inodes) -> mkfs::Options {
        let options = self.options;
        let defaults = mkfs::Options::new(size);
        let (uuid, hash_seed) = identity::from_options(options);
        mkfs::Options {
            block_size: options.block_size.or(self.block_size_unasked()),
            inode_size: self.inode_size.unwrap_or(defaults.inode_size),
            inodes: match inodes {
                Inodes::PerBytes(bytes) => InodeCount::PerBytes(bytes),
                Inodes::Count(count) => InodeCount::Count(count),
            },
            label: options.label.clone().unwrap_or_default(),
            last_mounted: options.last_mounted.clone().unwrap_or_default(),
            uuid: options.uuid.unwrap_or(uuid),
            hash_seed: options.hash_seed.unwrap_or(hash_seed),
            features: self.features.clone(),
            reserved_percent: options.reserved_percent.unwrap_or(defaults.reserved_percent),
            journal_bytes: options.journal_bytes,
            time: options.image_time(),
            root_uid: options.owner.map_or(0, |o| o.uid),
            root_gid: options.owner.map_or(0, |o| o.gid),
            tuning: options.tuning.clone(),
            ..defaults
        }
    }
}

impl Maker for Ext4Maker<'_> {
    fn plan(&self, size: u64, inodes: Inodes) -> Result<Box<dyn Plan>, BuildError> {
        Ok(Box::new(mkfs::plan(&self.mkfs_options(size, inodes))?))
    }

    fn size_min(&self) -> u64 {
        0
    }

    fn inodes(&self) -> InodeRule {
        match (self.options.inodes, self.options.bytes_per_inode) {
            (Some(count), _) => {
                InodeRule::Chosen(Inodes::Count(u32::try_from(count).unwrap_or(u32::MAX)))
            }
            (None, Some(bytes)) => InodeRule::Chosen(Inodes::PerBytes(bytes)),
            (None, None) => InodeRule::Fitted(match mkfs::Options::new(0).inodes {
                InodeCount::PerBytes(bytes) => Inodes::PerBytes(bytes),
                InodeCount::Count(count) => Inodes::Count(count),
            }),
        }
    }
}

impl Plan for Layout {
    fn block_size(&self) -> u64 {
        self.superblock().block_size().into()
    }

    fn free_blocks(&self) -> u64 {
        Layout::free_blocks(self)
    }

    fn inodes_max(&self) -> u64 {
        self.superblock().inodes_count.into()
    }

    /// Blocks reserved for privileged users, and those that a mounted kernel reserves for extent tree changes that must
    /// not fail (2 %, at most 4096; `reserved_clusters` in `ext4(5)` of sysfs).
    fn unavailable(&self) -> u64 {
        let superblock = self.superblock();
        superblock.raw.reserved_blocks() + (superblock.blocks_count / 50).min(4096)
    }

    fn estimate(&self) -> Option<Box<dyn Estimate>> {
        Some(Box::new(Ext4Estimate::new(self.superblock())?))
    }

    fn make(&self, device: &Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn Fresh>> {
        mkfs::format(&**device, self, Contents::Zeros)?;
        Ok(Box::new(Ext4::open_in_progress(Arc::clone(device), ext4::CACHE_BYTES_DEFAULT)?))
    }
}

impl Fresh for Ext4 {
    fn file_system(&self) -> &dyn FileSystem {
        self
    }

    fn uuid_is_fixed(&self) -> bool {
        Ext4Core::uuid_is_fixed(self)
    }

    fn protect(&self, ino: Ino, is_trial: bool, threads: usize) -> vfs::Result<Option<[u8; 32]>> {
        if is_trial {
            return self.try_protect(ino).map(|()| None);
        }
        Ext4Core::protect(self, ino, threads).map(Some)
    }

    fn finish(&self, uuid: Option<[u8; 16]>) -> vfs::Result<()> {
        Ext4::finish(self, uuid)
    }
}
