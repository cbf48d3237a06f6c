//! Building ext2, ext3 and ext4.

use std::path::PathBuf;
use std::sync::Arc;

use disk::{BlockDevice, JoinedDevice, MemoryDevice};
use ext4::format::features::{Feature, RoCompat};
use ext4::format::journal_device::{JournalDevice, JournalDeviceOptions, uuid_for};
use ext4::mkfs::{self, ExternalJournal, FeatureChange, InodeCount, Layout, PreviousContents};
use ext4::tune::Request;
use ext4::{Ext4, Ext4Core, log};
use vfs::{FileSystem, Ino, Timestamp};

use super::{Fresh, InodeRule, Inodes, Maker, Plan, feature_list};
use crate::build::estimate::{Estimate, Ext4Estimate};
use crate::build::{BuildError, BuildOptions, identity};
use crate::image::devices::{self, DevicePurpose};

/// Block size if the image size is computed, in bytes. A trial counts blocks before the size is known, so the block
/// size must not depend on it.
const BLOCK_SIZE_AUTO: u32 = 4096;

pub(super) struct Ext4Maker<'a> {
    options: &'a BuildOptions,
    features: Vec<FeatureChange>,
    inode_size: Option<u16>,
    journal: Option<Arc<dyn BlockDevice>>,
    has_quota: bool,
}

/// Layout of an image, and its journal device if the image does not contain the journal.
struct Ext4Plan {
    layout: Layout,
    journal: Option<Journal>,
    quota: Option<Quota>,
}

/// Quota files to make when the tree is complete, because usage is not counted while it is filled.
#[derive(Clone, Copy)]
struct Quota {
    time: Timestamp,
    has_projects: bool,
}

/// Journal device of a new image.
#[derive(Clone)]
struct Journal {
    device: Arc<dyn BlockDevice>,
    /// Options of a new journal; `None` to keep the one on the device.
    new: Option<JournalDeviceOptions>,
}

/// New file system, and its journal device if that is to be made.
struct NewExt4 {
    fs: Ext4,
    journal: Option<Journal>,
    quota: Option<Quota>,
}

/// Space for quota files in bytes: a few hundred owners.
const QUOTA_BYTES: u64 = 128 << 10;
const QUOTA: Feature = Feature::RoCompat(RoCompat::QUOTA);

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
        let mut features = FeatureChange::parse_list(&list)?;
        let has_quota = features.iter().rfind(|change| change.feature == QUOTA);
        let has_quota = has_quota.is_some_and(|change| change.on);
        features.retain(|change| change.feature != QUOTA);
        let open = |path: &PathBuf| devices::open(path, false, DevicePurpose::Write);
        let journal = options.log_device.as_ref().map(open).transpose();
        let journal = journal.map_err(|e| BuildError::Image(Box::new(e)))?;
        Ok(Self { options, features, inode_size, journal, has_quota })
    }

    /// Returns the journal device for images with these options.
    fn journal(&self, mkfs: &mkfs::Options) -> Result<Option<Journal>, BuildError> {
        let Some(device) = self.journal.clone() else { return Ok(None) };
        let block_size = mkfs.checked_block_size()?;
        if self.options.keeps_journal {
            return Ok(Some(Journal { device, new: None }));
        }
        let new = JournalDeviceOptions {
            size_bytes: device.len(),
            block_size,
            uuid: uuid_for(mkfs.uuid),
            label: Vec::new(),
            hash_seed: mkfs.hash_seed,
            has_checksum: false,
            time: mkfs.time,
        };
        JournalDevice::plan(&new)?;
        Ok(Some(Journal { device, new: Some(new) }))
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
        let mut options = self.mkfs_options(size, inodes);
        let journal = self.journal(&options)?;
        if let Some(journal) = &journal {
            let block_size = options.checked_block_size()?;
            options.external_journal = Some(ExternalJournal {
                uuid: journal.uuid(block_size)?,
                device_number: self.options.log_device.as_deref().map_or(0, devices::device_number),
            });
        }
        let layout = mkfs::plan(&options)?;
        let has_projects = layout.superblock().features.ro_compat(RoCompat::PROJECT);
        let quota = self.has_quota.then_some(Quota { time: options.time, has_projects });
        Ok(Box::new(Ext4Plan { layout, journal, quota }))
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

impl Journal {
    /// Returns the UUID of the journal of an image with this block size.
    fn uuid(&self, block_size: u32) -> Result<[u8; 16], BuildError> {
        if let Some(new) = &self.new {
            return Ok(new.uuid);
        }
        let alone = self.join(Arc::new(MemoryDevice::new(0)))?;
        Ok(log::free_device(&*alone, block_size, None)?.raw.uuid)
    }

    /// Joins the device to that of the image.
    fn join(&self, image: Arc<dyn BlockDevice>) -> vfs::Result<Arc<dyn BlockDevice>> {
        let joined = JoinedDevice::new(image, Some(Arc::clone(&self.device)), None);
        Ok(Arc::new(joined.map_err(vfs::Error::Device)?))
    }

    /// Makes a new journal for a file system with this UUID.
    fn make(&self, file_system: [u8; 16]) -> vfs::Result<()> {
        let Some(new) = &self.new else { return Ok(()) };
        let new = JournalDeviceOptions { uuid: uuid_for(file_system), ..new.clone() };
        let joined = self.join(Arc::new(MemoryDevice::new(0)))?;
        log::make_device(&*joined, &JournalDevice::plan(&new)?)
    }
}

impl Plan for Ext4Plan {
    fn block_size(&self) -> u64 {
        self.layout.superblock().block_size().into()
    }

    fn free_blocks(&self) -> u64 {
        let reserved = self.quota.map_or(0, |_| QUOTA_BYTES.div_ceil(self.block_size()));
        self.layout.free_blocks().saturating_sub(reserved)
    }

    fn inodes_max(&self) -> u64 {
        self.layout.superblock().inodes_count.into()
    }

    /// Blocks reserved for privileged users, and those that a mounted kernel reserves for extent tree changes that must
    /// not fail (2 %, at most 4096; `reserved_clusters` in `ext4(5)` of sysfs).
    fn unavailable(&self) -> u64 {
        let superblock = self.layout.superblock();
        superblock.raw.reserved_blocks() + (superblock.blocks_count / 50).min(4096)
    }

    fn estimate(&self) -> Option<Box<dyn Estimate>> {
        Some(Box::new(Ext4Estimate::new(self.layout.superblock())?))
    }

    fn make(&self, device: &Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn Fresh>> {
        mkfs::format(&**device, &self.layout, PreviousContents::Zeros)?;
        let device = match &self.journal {
            Some(journal) => journal.join(Arc::clone(device))?,
            None => Arc::clone(device),
        };
        let fs = Ext4::open_in_progress(device, ext4::CACHE_BYTES_DEFAULT)?;
        Ok(Box::new(NewExt4 { fs, journal: self.journal.clone(), quota: self.quota }))
    }
}

impl Fresh for NewExt4 {
    fn file_system(&self) -> &dyn FileSystem {
        &self.fs
    }

    fn uuid_is_fixed(&self) -> bool {
        Ext4Core::uuid_is_fixed(&self.fs)
    }

    fn protect(&self, ino: Ino, is_trial: bool, threads: usize) -> vfs::Result<Option<[u8; 32]>> {
        if is_trial {
            return self.fs.try_protect(ino).map(|()| None);
        }
        Ext4Core::protect(&self.fs, ino, threads).map(Some)
    }

    /// A new journal is made at the end, because its UUID depends on that of the image.
    fn finish(&self, uuid: Option<[u8; 16]>) -> vfs::Result<()> {
        if let Some(journal) = &self.journal {
            journal.make(uuid.unwrap_or(self.fs.superblock().raw.uuid))?;
        }
        Ext4::finish(&self.fs, uuid)?;
        self.quota.map_or(Ok(()), |quota| quota.make(self.fs.device()))
    }
}

impl Quota {
    /// Makes the quota files with the usage of the complete tree.
    fn make(self, device: &Arc<dyn BlockDevice>) -> vfs::Result<()> {
        let mut request = Request::default();
        request.features = vec![(QUOTA, true)];
        request.quotas = [Some(true), Some(true), self.has_projects.then_some(true)];
        request.time = Some(self.time);
        ext4::tune::tune(device, &request, &mut |_| Ok(()))
    }
}
