//! Building XFS.

use std::sync::Arc;

use blockdev::BlockDevice;
use vfs::FileSystem;
use xfs::Xfs;
use xfs::mkfs::{self, Contents, FeatureChange, Layout, SIZE_MIN, SMALL_SIZE_MIN};

use super::{Fresh, InodeRule, Inodes, Maker, Plan, feature_list};
use crate::build::{BuildError, BuildOptions, identity};

pub(super) struct XfsMaker<'a> {
    options: &'a BuildOptions,
    features: Vec<FeatureChange>,
    inode_size: Option<u16>,
}

impl<'a> XfsMaker<'a> {
    pub(super) fn new(options: &'a BuildOptions) -> Result<Self, BuildError> {
        let features = FeatureChange::parse_list(&feature_list(options))?;
        let inode_size = options.inode_size.map(u16::try_from).transpose();
        let inode_size =
            inode_size.map_err(|_| vfs::Error::Invalid("the inode size is too large"))?;
        Ok(Self { options, features, inode_size })
    }

    fn mkfs_options(&self, size: u64) -> mkfs::Options {
        let options = self.options;
        let defaults = mkfs::Options::new(size);
        mkfs::Options {
            block_size: options.block_size.unwrap_or(defaults.block_size),
            inode_size: self.inode_size.unwrap_or(defaults.inode_size),
            dir_block_size: options.dir_block_size,
            ag_count: options.ag_count,
            ag_bytes: options.ag_bytes,
            log_bytes: options.log_bytes,
            label: options.label.clone().unwrap_or_default(),
            uuid: options.uuid.unwrap_or_else(|| identity::from_options(options).0),
            features: self.features.clone(),
            allow_small: options.small,
            time: options.image_time(),
            root_uid: options.owner.map_or(0, |o| o.uid),
            root_gid: options.owner.map_or(0, |o| o.gid),
            ..defaults
        }
    }
}

impl Maker for XfsMaker<'_> {
    fn plan(&self, size: u64, _: Inodes) -> Result<Box<dyn Plan>, BuildError> {
        if !self.options.small && (SMALL_SIZE_MIN..SIZE_MIN).contains(&size) {
            let problem = "XFS images below 300 MiB are slow and little tested: give --small to make \
                           one, or a larger --size";
            return Err(vfs::Error::Invalid(problem).into());
        }
        Ok(Box::new(mkfs::plan(&self.mkfs_options(size))?))
    }

    fn size_min(&self) -> u64 {
        if self.options.small { 0 } else { SIZE_MIN }
    }

    fn inodes(&self) -> InodeRule {
        InodeRule::OnDemand
    }
}

impl Plan for Layout {
    fn block_size(&self) -> u64 {
        Layout::block_size(self).into()
    }

    fn free_blocks(&self) -> u64 {
        self.superblock().fdblocks.get()
    }

    /// What the kernel keeps while the file system is mounted: for changes that must not fail (5 %, at
    /// most 8192 blocks), and in each group for the growth of its trees (a little more than 2 % with all
    /// of them) and of its list of free blocks.
    fn unavailable(&self) -> u64 {
        let superblock = self.superblock();
        let (blocks, groups) = (superblock.dblocks.get(), u64::from(superblock.agcount.get()));
        (blocks / 20).min(8192) + blocks / 40 + groups * 16
    }

    fn make(&self, device: &Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn Fresh>> {
        mkfs::format(&**device, self, Contents::Zeros)?;
        Ok(Box::new(Xfs::open_fresh(Arc::clone(device), xfs::CACHE_BYTES_DEFAULT)?))
    }
}

impl Fresh for Xfs {
    fn file_system(&self) -> &dyn FileSystem {
        self
    }

    /// Metadata bears the UUID it was made with; the superblock says so if another one shows.
    fn uuid_is_fixed(&self) -> bool {
        false
    }

    fn finish(&self, uuid: Option<[u8; 16]>) -> vfs::Result<()> {
        Xfs::finish(self, uuid)
    }
}
