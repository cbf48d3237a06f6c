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
use crate::build::FeatureChange;
use crate::format::Format;

/// Always the same, so that the same run gives the same image. Kernels refuse a UUID of zeros.
const UUID: [u8; 16] = *b"diskwright-work!";
/// Sizes are multiples of this, in bytes.
const SIZE_UNIT: u64 = 1 << 20;
/// Contents of files take whole blocks of so many bytes.
const BLOCK_BYTES: u64 = 4096;

/// Part of a file system that is for its own structures beside those that [`SPARE_BYTES`] hold, as a
/// divisor. Inode tables of ext4 take a 64th, and the kernel sets up to 2.3 % of an XFS aside for trees.
const SPARE_DIVISOR: u64 = 32;
/// Space beside inodes, contents and that part, in bytes: journal or log, which take 1 GiB at most as long
/// as the part does not make up for more, and room to move.
const SPARE_BYTES: u64 = 5 << 28;

/// Smallest ext4 that is made unasked, in bytes: large enough for a journal of 64 MiB.
const EXT4_SIZE_MIN: u64 = 4 << 30;
/// Space for an inode of ext4 and its name, and for a block of contents, in bytes. No more inodes than
/// one for each 4 KiB could be had.
const EXT4_INODE_BYTES: u64 = 8 << 10;
/// Inodes are not to be scarcer than mke2fs makes them: one for so many bytes.
const EXT4_INODE_RATIO_MAX: u64 = 16 << 10;
/// From so many names on, a directory of ext4 may need an index of three levels, which the feature
/// `large_dir` allows. Two levels lead to some 130,000 leaves when every node is half full, as splits leave
/// them, and a leaf that is half full has 42 of the names that workloads make.
const EXT4_LARGE_DIR_FROM: u64 = 5_000_000;

/// Space for an inode of XFS, its name and its parent pointer, in bytes, so that inodes take less than
/// the quarter that they may.
const XFS_INODE_BYTES: u64 = 2400;
/// The part that inodes of XFS may take, in percent. mkfs.xfs lets them have less of a large one.
const XFS_INODES_PERCENT: u8 = 25;
/// Fewest and most allocation groups. Threads allocate in parallel if each has its own.
const XFS_AG_COUNTS: (u32, u32) = (4, 256);
/// Groups that are asked for are at least this large, in bytes.
const XFS_AG_BYTES_MIN: u64 = 256 << 20;
/// No group can be as large as this, in bytes.
const XFS_AG_BYTES_END: u64 = 1 << 40;

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
        if plan.free_bytes() < least || plan.inodes() < need.inodes {
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

    /// The size of an XFS log, in bytes.
    #[cfg(target_os = "linux")]
    pub(super) fn xfs_log_bytes(&self) -> Option<u64> {
        match &self.layout {
            Layout::Ext4(_) => None,
            Layout::Xfs(layout) => {
                let blocks = u64::from(layout.superblock().logblocks.get());
                Some(blocks * u64::from(layout.block_size()))
            }
        }
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

    /// Inodes that there can be beside those which there are.
    fn inodes(&self) -> u64 {
        match &self.layout {
            Layout::Ext4(layout) => layout.free_inodes().into(),
            Layout::Xfs(layout) => {
                let sb = layout.superblock();
                let bytes = self.size / 100 * u64::from(sb.imax_pct);
                (bytes / u64::from(sb.inodesize.get())).saturating_sub(sb.icount.get())
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

/// What a report must say of the images of a format, whoever mounts them.
pub(super) fn remark(format: Format) -> Option<&'static str> {
    match format {
        Format::Ext4 => {
            Some("an image for directories of 5 million names and more has large_dir as well")
        }
        Format::Xfs => None,
    }
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

/// What contents of files take, in bytes: the last block of each file that has any is not full.
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
    // Said first, so that whoever asks for an image without it gets one.
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
    // A size may be too small for so many groups, or too large for so few: mkfs then chooses.
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
        FsSpec { format, features: Vec::new(), free_index: None, orphans: None, size: None }
    }

    #[track_caller]
    fn plan(format: Format, need: &Need) -> Plan {
        Plan::new(&spec(format), need).unwrap_or_else(|error| panic!("{need:?}: {error}"))
    }

    /// What the kernel leaves free of an XFS, which sets space aside for trees that may grow.
    fn usable(plan: &Plan) -> u64 {
        let aside = if matches!(plan.layout, Layout::Xfs(_)) { plan.size / 43 } else { 0 };
        plan.free_bytes() - aside
    }

    #[test]
    fn what_is_needed_fits() {
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
                        // A file's last block is its own, and so is the entry of a name.
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
        let has = |plan: Plan| plan.has_feature("large_dir");
        assert!(has(plan(Format::Ext4, &need(10_000_000, 1))));
        assert!(!has(plan(Format::Ext4, &need(10_000_000, 4))));
        assert!(!has(plan(Format::Ext4, &need(1_000_000, 1))));
        let not = FeatureChange { name: "large_dir".into(), is_on: false };
        let spec = FsSpec { features: vec![not], ..spec(Format::Ext4) };
        assert!(!has(Plan::new(&spec, &need(10_000_000, 1)).unwrap()));
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
        assert!(matches!(Plan::new(&spec(Format::Ext4), &need), Err(Error::Unsupported(_))));
        assert!(plan(Format::Xfs, &need).inodes() >= need.inodes);
    }
}
