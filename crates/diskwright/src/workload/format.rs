//! Making the file systems that workloads are run on. Those in memory and those that the kernel mounts
//! are the same images.

use ::{ext4::mkfs as ext4_mkfs, xfs::mkfs as xfs_mkfs};
use ::ext4::OrphanPolicy;
use ::workload::contestant::Need;
use ::workload::target::TIME;
use ::workload::{Error, Result};
use ::xfs::FreeIndexStrategy;
use blockdev::BlockDevice;
use ext4_mkfs::InodeCount;

use super::FsSpec;
use crate::build::{FeatureChange, Format};

/// Always the same, so that the same run gives the same image. Kernels refuse a UUID of zeros.
const UUID: [u8; 16] = *b"diskwright-work!";
/// Sizes are multiples of this, in bytes.
const SIZE_UNIT: u64 = 1 << 20;
/// Contents of files take whole blocks of so many bytes.
const BLOCK_BYTES: u64 = 4096;

/// Smallest ext4 that is made unasked, in bytes: large enough for a journal of 64 MiB.
const EXT4_SIZE_MIN: u64 = 4 << 30;
/// Space for an inode of ext4 and its name, and for a block of contents, in bytes. No more inodes than
/// one for each 4 KiB could be had.
const EXT4_INODE_BYTES: u64 = 8 << 10;
/// Inodes are not to be scarcer than mke2fs makes them: one for so many bytes.
const EXT4_INODE_RATIO_MAX: u64 = 16 << 10;

/// Space of an XFS beside inodes and contents, in bytes: log, trees, room to move.
const XFS_SIZE_MIN: u64 = 1 << 30;
/// Space for an inode of XFS, its name and its parent pointer, in bytes, so that inodes take less than
/// the quarter that they may.
const XFS_INODE_BYTES: u64 = 2400;
/// Fewest and most allocation groups. Threads allocate in parallel if each has its own.
const XFS_AG_COUNTS: (u32, u32) = (4, 256);
/// Groups that are asked for are at least this large, in bytes.
const XFS_AG_BYTES_MIN: u64 = 256 << 20;

/// What cannot be made for this can never be.
pub(super) const NOTHING: Need = Need { inodes: 0, bytes: 0, threads: 1, existing: false };

/// A file system to be made.
pub(super) struct Plan {
    size: u64,
    layout: Layout,
}

enum Layout {
    Ext4(Box<ext4_mkfs::Layout>),
    Xfs(Box<xfs_mkfs::Layout>),
}

impl Plan {
    /// Decides what a file system will be like.
    ///
    /// # Errors
    /// `Unsupported` if it cannot be, or has no room for what is needed.
    pub(super) fn new(spec: &FsSpec, need: &Need) -> Result<Self> {
        let size = spec.size.unwrap_or_else(|| size_for(spec.format, need));
        let layout = match spec.format {
            Format::Ext4 => ext4_layout(spec, size, need).map(|l| Layout::Ext4(Box::new(l))),
            Format::Xfs => xfs_layout(spec, size, need).map(|l| Layout::Xfs(Box::new(l))),
        };
        let plan = Self { size, layout: layout.map_err(|e| Error::Unsupported(e.to_string()))? };
        let least = need.bytes.saturating_add(plan.inodes_bytes(need.inodes));
        if plan.free_bytes() < least {
            let problem = "has no room for what this workload makes";
            let given = spec.size.map_or("", |_| ": give a larger size, or none");
            return Err(Error::Unsupported(format!(
                "an {} of {} {problem}{given}",
                spec.format.name(),
                crate::text::size(size)
            )));
        }
        Ok(plan)
    }

    /// The size of the device, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Makes the file system on a device of that size, which reads as zeros.
    pub(super) fn format(&self, device: &dyn BlockDevice) -> Result<()> {
        let made = match &self.layout {
            Layout::Ext4(layout) => ext4_mkfs::format(device, layout, ext4_mkfs::Contents::Zeros),
            Layout::Xfs(layout) => xfs_mkfs::format(device, layout, xfs_mkfs::Contents::Zeros),
        };
        made.map_err(|source| Error::FileSystem { operation: "mkfs", source })
    }

    /// All features that are on, in the format's own terms.
    fn features(&self) -> Vec<String> {
        match &self.layout {
            Layout::Ext4(layout) => layout.superblock().features.names(),
            Layout::Xfs(layout) => {
                let names = layout.superblock().features().names();
                names.into_iter().flat_map(|(_, names)| names).collect()
            }
        }
    }

    pub(super) fn has_feature(&self, name: &str) -> bool {
        self.features().iter().any(|feature| feature == name)
    }

    fn free_bytes(&self) -> u64 {
        match &self.layout {
            Layout::Ext4(layout) => {
                layout.free_blocks() * u64::from(layout.superblock().block_size())
            }
            Layout::Xfs(layout) => {
                layout.superblock().fdblocks.get() * u64::from(layout.block_size())
            }
        }
    }

    /// What so many inodes take of the free space. ext4 has set space aside for them.
    fn inodes_bytes(&self, inodes: u64) -> u64 {
        match &self.layout {
            Layout::Ext4(_) => 0,
            Layout::Xfs(layout) => {
                inodes.saturating_mul(layout.superblock().inodesize.get().into())
            }
        }
    }
}

/// All features of such file systems, in the format's own terms, for a report.
pub(super) fn features(spec: &FsSpec) -> String {
    Plan::new(spec, &NOTHING).map(|plan| plan.features().join(", ")).unwrap_or_default()
}

/// How many settings are not what they would be if nothing was said, whether they were said or not.
pub(super) fn deviations(spec: &FsSpec) -> u32 {
    let plain = FsSpec {
        format: spec.format,
        features: Vec::new(),
        free_index: None,
        orphans: None,
        size: None,
    };
    let names = |spec| Plan::new(spec, &NOTHING).map(|plan| plan.features()).unwrap_or_default();
    let (usual, these) = (names(&plain), names(&FsSpec { size: None, ..spec.clone() }));
    let only_in = |one: &[String], other: &[String]| {
        one.iter().filter(|name| !other.contains(name)).count() as u32
    };
    let is_unusual = [
        spec.orphans.unwrap_or_default() != OrphanPolicy::default(),
        spec.free_index.unwrap_or_default() != FreeIndexStrategy::default(),
    ];
    let ways = is_unusual.into_iter().map(u32::from).sum::<u32>();
    only_in(&usual, &these) + only_in(&these, &usual) + ways
}

/// Inodes of ext4 for a workload, and some to spare.
fn ext4_inodes(need: &Need) -> u64 {
    need.inodes.saturating_add(need.inodes / 16).saturating_add(1024)
}

fn size_for(format: Format, need: &Need) -> u64 {
    let size = match format {
        Format::Ext4 => {
            let inodes = ext4_inodes(need).saturating_mul(EXT4_INODE_BYTES);
            inodes.saturating_add(need.bytes).max(EXT4_SIZE_MIN)
        }
        Format::Xfs => {
            // The last block of each file that has contents is not full.
            let files = need.inodes.min(need.bytes);
            let contents = files.saturating_mul(BLOCK_BYTES).saturating_add(need.bytes);
            let inodes = need.inodes.saturating_mul(XFS_INODE_BYTES);
            let size = inodes.saturating_add(contents).saturating_add(XFS_SIZE_MIN);
            size.max(u64::from(xfs_groups(need)) * XFS_AG_BYTES_MIN)
        }
    };
    size.div_ceil(SIZE_UNIT).saturating_mul(SIZE_UNIT)
}

fn list(changes: &[FeatureChange]) -> String {
    changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn ext4_layout(spec: &FsSpec, size: u64, need: &Need) -> vfs::Result<ext4_mkfs::Layout> {
    let inodes = ext4_inodes(need).max(size / EXT4_INODE_RATIO_MAX);
    ext4_mkfs::plan(&ext4_mkfs::Options {
        inodes: InodeCount::Count(u32::try_from(inodes).unwrap_or(u32::MAX)),
        uuid: UUID,
        hash_seed: UUID,
        features: ext4_mkfs::FeatureChange::parse_list(&list(&spec.features))?,
        time: TIME,
        ..ext4_mkfs::Options::new(size)
    })
}

fn xfs_groups(need: &Need) -> u32 {
    let (least, most) = XFS_AG_COUNTS;
    need.threads.clamp(least, most)
}

fn xfs_layout(spec: &FsSpec, size: u64, need: &Need) -> vfs::Result<xfs_mkfs::Layout> {
    // A size that was given may be too small for so many groups: mkfs then chooses.
    let groups = xfs_groups(need);
    let has_room = size / u64::from(groups) >= XFS_AG_BYTES_MIN;
    xfs_mkfs::plan(&xfs_mkfs::Options {
        ag_count: has_room.then_some(groups),
        allow_small: true,
        uuid: UUID,
        features: xfs_mkfs::FeatureChange::parse_list(&list(&spec.features))?,
        time: TIME,
        ..xfs_mkfs::Options::new(size)
    })
}
