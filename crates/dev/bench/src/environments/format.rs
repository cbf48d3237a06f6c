//! Creation of file systems for workloads. File systems in memory and mounted ones use the same images.

use std::sync::Arc;

use crate::contestant::Need;
use crate::target::TIME;
use crate::{Error, Result};
use disk::BlockDevice;
use ext4::OrphanPolicy;
use ext4_mkfs::InodeCount;
use xfs::FreeIndexStrategy;
use {ext4::mkfs as ext4_mkfs, xfs::mkfs as xfs_mkfs};

use super::FsSpec;
use diskwright::Format;
use diskwright::build::FeatureChange;

/// The feature of quotas.
const QUOTA: &str = "quota";
/// Constant, so that the same run gives the same image. Kernels reject a UUID of zeros.
const UUID: [u8; 16] = *b"diskwright-work!";
/// Granularity of sizes in bytes.
const SIZE_UNIT: u64 = 1 << 20;
/// Size of blocks of file contents in bytes.
const BLOCK_BYTES: u64 = 4096;

/// Divisor for the space of metadata in addition to [`SPARE_BYTES`]. ext4 inode tables take 1/64, and the kernel
/// reserves up to 2.3 % of XFS for trees.
const SPARE_DIVISOR: u64 = 32;
/// Fixed additional space in bytes: journal or log (at most 1 GiB unless the divisor covers more) and a reserve.
const SPARE_BYTES: u64 = 5 << 28;

/// Default minimum size of ext4 in bytes, sufficient for a journal of 64 MiB.
const EXT4_SIZE_MIN: u64 = 4 << 30;
/// Space for an ext4 inode, its name and a content block, in bytes. The minimum is one inode per 4 KiB.
const EXT4_INODE_BYTES: u64 = 8 << 10;
/// Maximum bytes per inode, which is the default of mke2fs.
const EXT4_INODE_RATIO_MAX: u64 = 16 << 10;
/// Number of names from which an ext4 directory may need a three-level index (feature `large_dir`). Two levels have
/// about 130,000 leaves if every node is half full after splits, and a half-full leaf has 42 of the workloads' names.
const EXT4_LARGE_DIR_FROM: u64 = 5_000_000;

/// Space for an XFS inode, its name and its parent pointer, in bytes. With it, inodes need less than their limit of a
/// quarter.
const XFS_INODE_BYTES: u64 = 2400;
/// Maximum space for XFS inodes in percent. The default of mkfs.xfs is lower for large file systems.
const XFS_INODES_PERCENT: u8 = 25;
/// Minimum and maximum number of allocation groups. Threads allocate in parallel in different groups.
const XFS_AG_COUNTS: (u32, u32) = (4, 256);
/// Minimum size of a group, in bytes, if more groups are requested.
const XFS_AG_BYTES_MIN: u64 = 256 << 20;
/// Exclusive upper limit of the group size, in bytes.
const XFS_AG_BYTES_END: u64 = 1 << 40;

/// Minimal requirements: a specification that cannot satisfy them is always invalid.
pub(super) const NOTHING: Need = Need { inodes: 0, bytes: 0, threads: 1, existing: false };

/// Planned file system.
pub(super) struct FsPlan {
    size: u64,
    layout: MkfsLayout,
    /// True for quotas of users, groups and, in XFS, projects.
    has_quotas: bool,
}

enum MkfsLayout {
    Ext4(Box<ext4_mkfs::Layout>),
    Xfs(Box<xfs_mkfs::Layout>),
}

impl FsPlan {
    /// Plans a file system.
    ///
    /// # Errors
    /// `Unsupported` if it is impossible or has too little space.
    pub(super) fn new(spec: &FsSpec, need: &Need) -> Result<Self> {
        let size = spec.size.unwrap_or_else(|| size_for(spec.format, need));
        let mut spec = spec.clone();
        let quota = spec.features.iter().rfind(|change| change.name == QUOTA);
        let has_quotas = quota.is_some_and(|change| change.is_on);
        spec.features.retain(|change| change.name != QUOTA);
        let spec = &spec;
        let layout = match spec.format {
            Format::Ext4 => ext4_layout(spec, size, need).map(|l| MkfsLayout::Ext4(Box::new(l))),
            Format::Xfs => xfs_layout(spec, size, need).map(|l| MkfsLayout::Xfs(Box::new(l))),
        };
        let layout = layout.map_err(|e| Error::Unsupported(e.to_string()))?;
        let plan = Self { size, layout, has_quotas };
        let least = need.bytes.saturating_add(plan.inodes_bytes(need.inodes));
        if plan.free_bytes() < least || plan.inodes() < need.inodes {
            let problem = "is too small for this workload";
            let given = spec.size.map_or("", |_| "; choose a larger size, or leave it out");
            return Err(Error::Unsupported(format!(
                "an {} of {} {problem}{given}",
                spec.format.name(),
                diskwright::text::size(size)
            )));
        }
        Ok(plan)
    }

    /// Returns the size of the device in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Creates the file system on a zeroed device of that size.
    pub(super) fn format(&self, device: &dyn BlockDevice) -> Result<()> {
        let made = match &self.layout {
            MkfsLayout::Ext4(layout) => {
                ext4_mkfs::format(device, layout, ext4_mkfs::PreviousContents::Zeros)
            }
            MkfsLayout::Xfs(layout) => {
                xfs_mkfs::format(device, layout, xfs_mkfs::PreviousContents::Zeros)
            }
        };
        made.map_err(|source| Error::FileSystem { operation: "mkfs", source })
    }

    /// Makes quota files in a new file system if the specification has quotas.
    pub(super) fn make_quotas(&self, device: &Arc<dyn BlockDevice>) -> Result<()> {
        if !self.has_quotas {
            return Ok(());
        }
        let made = match &self.layout {
            MkfsLayout::Ext4(_) => {
                let mut request = ext4::tune::Request::default();
                request.quotas = [Some(true), Some(true), None];
                ext4::tune::tune(device, &request, &mut |_| Ok(()))
            }
            MkfsLayout::Xfs(_) => xfs::tune::make_quotas(device, xfs::tune::Quotas::ALL, TIME),
        };
        made.map_err(|source| Error::FileSystem { operation: "make quotas", source })
    }

    /// Returns the names of all enabled features.
    fn features(&self) -> Vec<String> {
        match &self.layout {
            MkfsLayout::Ext4(layout) => layout.superblock().features.names(),
            MkfsLayout::Xfs(layout) => {
                let names = layout.superblock().features().names();
                names.into_iter().flat_map(|(_, names)| names).collect()
            }
        }
    }

    pub(super) fn has_feature(&self, name: &str) -> bool {
        self.features().iter().any(|feature| feature == name)
    }

    /// Returns the size of the XFS log in bytes.
    #[cfg(target_os = "linux")]
    pub(super) fn xfs_log_bytes(&self) -> Option<u64> {
        match &self.layout {
            MkfsLayout::Ext4(_) => None,
            MkfsLayout::Xfs(layout) => {
                let blocks = u64::from(layout.superblock().logblocks.get());
                Some(blocks * u64::from(layout.block_size()))
            }
        }
    }

    fn free_bytes(&self) -> u64 {
        match &self.layout {
            MkfsLayout::Ext4(layout) => {
                layout.free_blocks() * u64::from(layout.superblock().block_size())
            }
            MkfsLayout::Xfs(layout) => {
                layout.superblock().fdblocks.get() * u64::from(layout.block_size())
            }
        }
    }

    /// Returns the number of inodes that can be created.
    fn inodes(&self) -> u64 {
        match &self.layout {
            MkfsLayout::Ext4(layout) => layout.free_inodes().into(),
            MkfsLayout::Xfs(layout) => {
                let sb = layout.superblock();
                let bytes = self.size / 100 * u64::from(sb.imax_pct);
                (bytes / u64::from(sb.inodesize.get())).saturating_sub(sb.icount.get())
            }
        }
    }

    /// Returns the free space needed for this many inodes. For ext4 it is 0, because inode tables are preallocated.
    fn inodes_bytes(&self, inodes: u64) -> u64 {
        match &self.layout {
            MkfsLayout::Ext4(_) => 0,
            MkfsLayout::Xfs(layout) => {
                inodes.saturating_mul(layout.superblock().inodesize.get().into())
            }
        }
    }
}

/// Returns the names of all enabled features, for a report.
pub(super) fn features(spec: &FsSpec) -> String {
    FsPlan::new(spec, &NOTHING).map(|plan| plan.features().join(", ")).unwrap_or_default()
}

/// Returns a remark for reports on the images of a format.
pub(super) fn remark(format: Format) -> Option<&'static str> {
    match format {
        Format::Ext4 => {
            Some("an image for directories of at least 5 million names also has large_dir")
        }
        Format::Xfs => None,
    }
}

/// Returns the number of settings that differ from the defaults.
pub(super) fn deviations(spec: &FsSpec) -> u32 {
    let plain = FsSpec::plain(spec.format);
    let names = |spec| FsPlan::new(spec, &NOTHING).map(|plan| plan.features()).unwrap_or_default();
    let (usual, these) = (names(&plain), names(&FsSpec { size: None, ..spec.clone() }));
    let only_in = |one: &[String], other: &[String]| {
        one.iter().filter(|name| !other.contains(name)).count() as u32
    };
    let is_unusual = [
        spec.orphans.unwrap_or_default() != OrphanPolicy::default(),
        spec.free_index.unwrap_or_default() != FreeIndexStrategy::default(),
        spec.defer_creates,
    ];
    let ways = is_unusual.into_iter().map(u32::from).sum::<u32>();
    only_in(&usual, &these) + only_in(&these, &usual) + ways
}

/// Returns the number of ext4 inodes for a workload, with a reserve.
fn ext4_inodes(need: &Need) -> u64 {
    need.inodes.saturating_add(need.inodes / 16).saturating_add(1024)
}

/// Returns the space for file contents in bytes. The last block of each non-empty file is partial.
fn contents_bytes(need: &Need) -> u64 {
    let files = need.inodes.min(need.bytes);
    files.saturating_mul(BLOCK_BYTES - 1).saturating_add(need.bytes)
}

fn size_for(format: Format, need: &Need) -> u64 {
    let (used, least) = match format {
        Format::Ext4 => {
            let inodes = ext4_inodes(need).saturating_mul(EXT4_INODE_BYTES);
            (inodes.saturating_add(need.bytes), EXT4_SIZE_MIN)
        }
        Format::Xfs => {
            let inodes = need.inodes.saturating_mul(XFS_INODE_BYTES);
            let groups = u64::from(xfs_groups(need));
            (inodes.saturating_add(contents_bytes(need)), groups * XFS_AG_BYTES_MIN)
        }
    };
    let size = used.saturating_add(used / SPARE_DIVISOR).saturating_add(SPARE_BYTES).max(least);
    size.div_ceil(SIZE_UNIT).saturating_mul(SIZE_UNIT)
}

fn list(changes: &[FeatureChange]) -> String {
    changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn ext4_layout(spec: &FsSpec, size: u64, need: &Need) -> vfs::Result<ext4_mkfs::Layout> {
    let inodes = ext4_inodes(need).max(size / EXT4_INODE_RATIO_MAX);
    // Comes first, so that an explicit option can disable it.
    let names = need.inodes / u64::from(need.threads.max(1));
    let large_dir = if names >= EXT4_LARGE_DIR_FROM { "large_dir," } else { "" };
    let features = format!("{large_dir}{}", list(&spec.features));
    ext4_mkfs::plan(&ext4_mkfs::Options {
        inodes: InodeCount::Count(u32::try_from(inodes).unwrap_or(u32::MAX)),
        uuid: UUID,
        hash_seed: UUID,
        features: ext4_mkfs::FeatureChange::parse_list(&features)?,
        time: TIME,
        ..ext4_mkfs::Options::new(size)
    })
}

fn xfs_groups(need: &Need) -> u32 {
    let (least, most) = XFS_AG_COUNTS;
    need.threads.clamp(least, most)
}

fn xfs_layout(spec: &FsSpec, size: u64, need: &Need) -> vfs::Result<xfs_mkfs::Layout> {
    // A size may be too small or too large for this number of groups. mkfs then chooses.
    let groups = xfs_groups(need);
    let bytes = size.div_ceil(groups.into());
    let has_room = (XFS_AG_BYTES_MIN..XFS_AG_BYTES_END).contains(&bytes);
    xfs_mkfs::plan(&xfs_mkfs::Options {
        ag_count: has_room.then_some(groups),
        allow_small: true,
        inodes_percent_max: Some(XFS_INODES_PERCENT),
        uuid: UUID,
        features: xfs_mkfs::FeatureChange::parse_list(&list(&spec.features))?,
        time: TIME,
        ..xfs_mkfs::Options::new(size)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(format: Format) -> FsSpec {
        FsSpec::plain(format)
    }

    #[track_caller]
    fn plan(format: Format, need: &Need) -> FsPlan {
        FsPlan::new(&spec(format), need).unwrap_or_else(|error| panic!("{need:?}: {error}"))
    }

    /// Returns the free space of a file system less the kernel's reserve for growing XFS trees.
    fn usable(plan: &FsPlan) -> u64 {
        let aside = if matches!(plan.layout, MkfsLayout::Xfs(_)) { plan.size / 43 } else { 0 };
        plan.free_bytes() - aside
    }

    #[test]
    fn the_needed_files_fit() {
        for format in [Format::Ext4, Format::Xfs] {
            for inodes in [0, 1, 50_000, 10_000_000, 400_000_000] {
                for bytes in [0, 1, 1 << 20, 3 << 30, 4 << 30, 1 << 36, 1 << 40, 4 << 40, 12 << 40]
                {
                    for threads in [1, 40, 300] {
                        let need = Need { inodes, bytes, threads, existing: false };
                        let plan = plan(format, &need);
                        let name = format.name();
                        assert!(plan.inodes() >= inodes, "{name} {need:?}: {}", plan.inodes());
                        let blocks = usable(&plan) / BLOCK_BYTES;
                        // Each file has a partial last block, and names need directory entries.
                        let files = if bytes == 0 { 0 } else { inodes.min(bytes) };
                        let names = inodes / 50;
                        let own = plan.inodes_bytes(inodes) / BLOCK_BYTES;
                        let least = bytes / BLOCK_BYTES + files + names + own;
                        assert!(blocks >= least, "{name} {need:?}: {blocks} of {least}");
                    }
                }
            }
        }
    }

    #[test]
    fn directories_of_millions_have_three_levels_unless_it_is_said() {
        let need = |inodes, threads| Need { inodes, bytes: 0, threads, existing: false };
        let has = |plan: FsPlan| plan.has_feature("large_dir");
        assert!(has(plan(Format::Ext4, &need(10_000_000, 1))));
        assert!(!has(plan(Format::Ext4, &need(10_000_000, 4))));
        assert!(!has(plan(Format::Ext4, &need(1_000_000, 1))));
        let not = FeatureChange { name: "large_dir".into(), is_on: false };
        let spec = FsSpec { features: vec![not], ..spec(Format::Ext4) };
        assert!(!has(FsPlan::new(&spec, &need(10_000_000, 1)).unwrap()));
    }

    #[test]
    fn sizes_stay_in_proportion() {
        for format in [Format::Ext4, Format::Xfs] {
            let need = Need { inodes: 1000, bytes: 4 << 40, threads: 1, existing: false };
            let size = plan(format, &need).size();
            assert!(size < (4 << 40) + (4 << 40) / 24, "{}: {size}", format.name());
        }
    }

    #[test]
    fn more_inodes_than_there_can_be_are_refused() {
        let need = Need { inodes: 5_000_000_000, bytes: 0, threads: 1, existing: false };
        assert!(matches!(FsPlan::new(&spec(Format::Ext4), &need), Err(Error::Unsupported(_))));
        assert!(plan(Format::Xfs, &need).inodes() >= need.inodes);
    }
}
