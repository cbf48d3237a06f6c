//! Building XFS.

use std::path::PathBuf;
use std::sync::Arc;
use vfs::hint::{Advice, Hint, Setting};

use disk::{BlockDevice, JoinedDevice};
use vfs::{FileSystem, Ino, Timestamp};
use xfs::Xfs;
use xfs::format::features::RoCompat;
use xfs::format::superblock::RawSuperblock;
use xfs::mkfs::{
    self, FeatureChange, Layout, PreviousContents, RealtimeSection, SIZE_MIN, SMALL_SIZE_MIN,
};
use xfs::tune::Quotas;

use super::{Fresh, InodeRule, Inodes, Maker, Plan};
use crate::build::dedupe::ShareBlocks;
use crate::build::estimate::{Estimate, XfsEstimate};
use crate::build::{BuildError, BuildOptions, identity};
use crate::image::devices::{self, DevicePurpose};
use crate::verity;

/// Number of inodes per allocation.
const INODES_PER_CHUNK: u64 = 64;

pub(super) struct XfsMaker<'a> {
    options: &'a BuildOptions,
    features: Vec<FeatureChange>,
    inode_size: Option<u16>,
    log_device: Option<Arc<dyn BlockDevice>>,
    realtime_device: Option<Arc<dyn BlockDevice>>,
    quotas: Option<Quotas>,
}

/// Layout of an image, and the devices of its log and its realtime section, if they are on other devices.
struct XfsPlan {
    layout: Layout,
    log_device: Option<Arc<dyn BlockDevice>>,
    realtime_device: Option<Arc<dyn BlockDevice>>,
    quotas: Option<NewQuotas>,
}

/// Quotas of a new file system, and the time of their files.
#[derive(Clone, Copy)]
struct NewQuotas {
    quotas: Quotas,
    time: Timestamp,
}

/// New file system. Its quota files are made last, with the usage of the complete tree.
struct NewXfs {
    fs: Xfs,
    quotas: Option<NewQuotas>,
}

/// Space for quota files in blocks: some owners of each kind.
const QUOTA_BLOCKS: u64 = 64;

/// Names of features that make quota files, and their kinds. All limits are enforced.
const QUOTA_FEATURES: [(&str, [bool; 3]); 4] = [
    ("quota", [true; 3]),
    ("uquota", [true, false, false]),
    ("gquota", [false, true, false]),
    ("pquota", [false, false, true]),
];

/// Separates the kinds of quotas from other features.
fn split_quotas(options: &BuildOptions) -> (Option<Quotas>, String) {
    let mut kinds = [false; 3];
    let mut others = Vec::new();
    for feature in &options.features {
        let Some((_, named)) = QUOTA_FEATURES.iter().find(|(name, _)| *name == feature.name) else {
            others.push(feature.to_string());
            continue;
        };
        for (kind, _) in kinds.iter_mut().zip(named).filter(|(_, is_named)| **is_named) {
            *kind = feature.is_on;
        }
    }
    (kinds.contains(&true).then(|| Quotas::new(kinds, true)), others.join(","))
}

impl<'a> XfsMaker<'a> {
    pub(super) fn new(options: &'a BuildOptions) -> Result<Self, BuildError> {
        let (quotas, features) = split_quotas(options);
        let features = FeatureChange::parse_list(&features)?;
        let inode_size = options.inode_size.map(u16::try_from).transpose();
        let inode_size =
            inode_size.map_err(|_| vfs::Error::Invalid("the inode size is too large"))?;
        let open = |path: &PathBuf| devices::open(path, false, DevicePurpose::Write);
        let log_device = options.log_device.as_ref().map(open).transpose();
        let log_device = log_device.map_err(|e| BuildError::Image(Box::new(e)))?;
        let realtime_device = options.realtime_device.as_ref().map(open).transpose();
        let realtime_device = realtime_device.map_err(|e| BuildError::Image(Box::new(e)))?;
        Ok(Self { options, features, inode_size, log_device, realtime_device, quotas })
    }

    /// Returns the size of a log that takes its whole device, at most the maximum.
    fn log_device_bytes(&self) -> Option<u64> {
        self.log_device.as_ref().map(|device| device.len().min(mkfs::LOG_BYTES_MAX))
    }

    fn planned(&self, layout: Layout) -> Box<dyn Plan> {
        let (log_device, realtime_device) = (self.log_device.clone(), self.realtime_device.clone());
        let time = self.options.image_time();
        let quotas = self.quotas.map(|quotas| NewQuotas { quotas, time });
        Box::new(XfsPlan { layout, log_device, realtime_device, quotas })
    }

    /// Returns the realtime section: by default the whole device. Without a device, it has only sizes for the future.
    fn realtime_section(&self) -> Option<RealtimeSection> {
        let bytes = match &self.realtime_device {
            Some(device) => self.options.realtime_bytes.unwrap_or_else(|| device.len()),
            None if self.has_realtime_sizes() => 0,
            None => return None,
        };
        Some(RealtimeSection {
            bytes,
            extent_bytes: self.options.realtime_extent_bytes,
            group_bytes: self.options.realtime_group_bytes,
            group_count: self.options.realtime_group_count,
        })
    }

    fn has_realtime_sizes(&self) -> bool {
        let options = self.options;
        options.realtime_extent_bytes.is_some() || options.realtime_group_bytes.is_some()
    }

    /// `percent_max` is the maximum space for inodes in percent, or the default.
    fn mkfs_options(&self, size: u64, percent_max: Option<u8>) -> mkfs::Options {
        let options = self.options;
        let defaults = mkfs::Options::new(size);
        // dm-verity devices have this sector size, and kernels reject XFS with smaller sectors there.
        let sector_size = options.output.verity.as_ref().map(|_| verity::BLOCK_BYTES);
        mkfs::Options {
            block_size: options.block_size.unwrap_or(defaults.block_size),
            sector_size: sector_size.or(options.sector_size).unwrap_or(defaults.sector_size),
            inode_size: self.inode_size.unwrap_or(defaults.inode_size),
            dir_block_size: options.dir_block_size,
            ag_count: options.ag_count,
            ag_bytes: options.ag_bytes,
            log_bytes: options.log_bytes.or(self.log_device_bytes()),
            log_group: options.log_group,
            external_log: self.log_device.is_some(),
            log_stripe_bytes: options.log_stripe_bytes,
            stripe: options.xfs_stripe,
            atomic_write_bytes: options.xfs_atomic_write_bytes,
            only_supported: options.xfs_only_supported,
            label: options.label.clone().unwrap_or_default(),
            uuid: options.uuid.unwrap_or_else(|| identity::from_options(options).0),
            features: self.features.clone(),
            quota_flags: options.xfs_quota_flags,
            autofsck: options.xfs_autofsck,
            allow_small: options.small,
            inodes_percent_max: percent_max.or(options.inodes_percent),
            time: options.image_time(),
            root_uid: options.owner.map_or(0, |o| o.uid),
            root_gid: options.owner.map_or(0, |o| o.gid),
            realtime: self.realtime_section(),
            inherited: options.inherited,
            ..defaults
        }
    }
}

impl Maker for XfsMaker<'_> {
    fn plan(&self, size: u64, inodes: Inodes) -> Result<Box<dyn Plan>, BuildError> {
        if !self.options.small && (SMALL_SIZE_MIN..SIZE_MIN).contains(&size) {
            return Err(BuildError::Small);
        }
        let plan = mkfs::plan(&self.mkfs_options(size, None))?;
        plan.require_copy()?;
        let features = RoCompat::from_bits_retain(plan.superblock().features_ro_compat.get());
        if self.options.dedupe.is_some() && !features.contains(RoCompat::REFLINK) {
            let option = Advice::hint(Hint::Use(Setting::new("dedupe")));
            let why = Advice::text("sharing blocks needs the feature reflink; leave ^reflink out");
            return Err(BuildError::ForeignOption { option, why });
        }
        let Inodes::Count(count) = inodes else { return Ok(self.planned(plan)) };
        match percent_for(&plan, count.into(), self.options.free) {
            Some(percent) => Ok(self.planned(mkfs::plan(&self.mkfs_options(size, Some(percent)))?)),
            None => Ok(self.planned(plan)),
        }
    }

    fn size_min(&self) -> u64 {
        if self.options.small { 2 * SMALL_SIZE_MIN } else { SIZE_MIN }
    }

    fn inodes(&self) -> InodeRule {
        InodeRule::OnDemand
    }
}

/// Returns the percentage of space for `count` inodes if it exceeds the limit of the plan. In the additional `free`
/// bytes the default percentage applies.
fn percent_for(plan: &Layout, count: u64, free: u64) -> Option<u8> {
    let superblock = plan.superblock();
    let groups = u64::from(superblock.agcount.get());
    let per_block = u64::from(superblock.inopblock.get()).max(1);
    // Each group may have a partly used chunk.
    let chunk = INODES_PER_CHUNK.max(per_block);
    let blocks = (count + (groups + 1) * chunk).div_ceil(per_block);
    let usual = u64::from(superblock.imax_pct);
    let free = free / u64::from(plan.block_size()) * usual / 100;
    let percent = (blocks + free).saturating_mul(100).div_ceil(superblock.dblocks.get().max(1));
    u8::try_from(percent.min(100)).ok().filter(|percent| u64::from(*percent) > usual)
}

impl XfsPlan {
    fn superblock(&self) -> &RawSuperblock {
        self.layout.superblock()
    }
}

impl Plan for XfsPlan {
    fn block_size(&self) -> u64 {
        self.layout.block_size().into()
    }

    fn free_blocks(&self) -> u64 {
        let reserved = self.quotas.map_or(0, |_| QUOTA_BLOCKS);
        self.superblock().fdblocks.get().saturating_sub(reserved)
    }

    fn inodes_max(&self) -> u64 {
        let superblock = self.superblock();
        let blocks = superblock.dblocks.get() * u64::from(superblock.imax_pct) / 100;
        blocks.saturating_mul(superblock.inopblock.get().into())
    }

    /// Space that a mounted kernel reserves: for changes that must not fail (5 %, at most 8192 blocks), and in each
    /// group for the growth of its trees (slightly over 2 % with all of them) and of its free list.
    fn unavailable(&self) -> u64 {
        let superblock = self.superblock();
        let (blocks, groups) = (superblock.dblocks.get(), u64::from(superblock.agcount.get()));
        (blocks / 20).min(8192) + blocks / 40 + groups * 16
    }

    fn estimate(&self) -> Option<Box<dyn Estimate>> {
        Some(Box::new(XfsEstimate::new(self.superblock())?))
    }

    fn make(&self, device: &Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn Fresh>> {
        let mut device = Arc::clone(device);
        if self.log_device.is_some() || self.realtime_device.is_some() {
            let (log, realtime) = (self.log_device.clone(), self.realtime_device.clone());
            let joined = JoinedDevice::new(device, log, realtime);
            device = Arc::new(joined.map_err(vfs::Error::Device)?);
        }
        mkfs::format(&*device, &self.layout, PreviousContents::Zeros)?;
        let fs = Xfs::open_in_progress(device, xfs::CACHE_BYTES_DEFAULT)?;
        Ok(Box::new(NewXfs { fs, quotas: self.quotas }))
    }
}

impl Fresh for NewXfs {
    fn file_system(&self) -> &dyn FileSystem {
        &self.fs
    }

    /// Metadata contains the original UUID; the superblock stores both if they differ.
    fn uuid_is_fixed(&self) -> bool {
        false
    }

    fn protect(&self, _: Ino, _: bool, _: usize) -> vfs::Result<Option<[u8; 32]>> {
        Err(vfs::Error::unsupported("fs-verity in XFS", "build an ext4 image"))
    }

    fn finish(&self, uuid: Option<[u8; 16]>) -> vfs::Result<()> {
        Xfs::finish(&self.fs, uuid)?;
        let Some(NewQuotas { quotas, time }) = self.quotas else { return Ok(()) };
        xfs::tune::make_quotas(self.fs.device(), quotas, time)
    }

    fn sharing(&self) -> Option<&dyn ShareBlocks> {
        self.fs.can_share().then_some(&self.fs)
    }
}

impl ShareBlocks for Xfs {
    fn block_size(&self) -> u64 {
        self.superblock().raw.blocksize.get().into()
    }

    fn share(&self, from: (Ino, u64), to: (Ino, u64), len: u64) -> vfs::Result<()> {
        self.share_blocks(from, to, len)
    }

    fn read_back(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> vfs::Result<usize> {
        FileSystem::read(self, ino, offset, buffer)
    }
}
