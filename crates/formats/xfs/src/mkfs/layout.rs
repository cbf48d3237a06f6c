//! The layout of a new file system.

use vfs::{Error, Ino, Result, Timestamp};
use zerocopy::FromZeros;

use super::options::{Autofsck, Inherited, Options};
use super::{log_size, numbers, realtime_fields, realtime_group_fields};
use crate::alloc::ags::{AG_TREES, AgTree};
use crate::format::address::{AgBlock, AgIno, AgNumber};
use crate::format::ag::AGFL_SECTOR;
use crate::format::btree::TreeShape;
use crate::format::features::{Features, Incompat, RoCompat, Version};
use crate::format::geometry::{Geometry, INODES_PER_CHUNK};
use crate::format::superblock::{MAGIC, REALTIME_GROUP_LOG, RawSuperblock, Superblock};

/// Size of the inode cluster that old kernels read at once, for inodes of 256 bytes (`XFS_INODE_BIG_CLUSTER_SIZE`).
const INODE_CLUSTER_BYTES: u32 = 8192;
/// Number of inodes of the file system itself.
const INODES_USED: u32 = 3;
/// Unit of the realtime device in bytes, if there is none.
const REALTIME_UNIT_BYTES: u32 = 4096;

/// A planned file system.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The superblock of the first group, except for `inprogress`. `logstart` is 0 if the log is on another device.
    pub(super) superblock: RawSuperblock,
    pub(super) geometry: Geometry,
    /// Root blocks by tree, the same in every group. `None` for trees that the file system does not have.
    pub(super) roots: [Option<AgBlock>; AG_TREES],
    /// The first block after the roots.
    pub(super) body: u32,
    /// Initial number of blocks of the AGFL.
    pub(super) agfl_len: u32,
    pub(super) log_ag: AgNumber,
    /// Number of blocks of the log in that group; 0 if it is on another device.
    pub(super) log_len: u32,
    /// Alignment unit of the log, in blocks.
    pub(super) log_unit: u32,
    /// The group with the directories below the root of the metadata directory; `None` without that directory. Kernels
    /// choose the group of the log, or the first one if the log is on another device.
    pub(super) metadir_ag: Option<AgNumber>,
    pub(super) root: RootDirectory,
    /// The superblock with a realtime section with groups, which is added last.
    pub(super) with_groups: Option<Superblock>,
}

/// Attributes of the root directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct RootDirectory {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) permissions: u16,
    pub(super) time: Timestamp,
    /// Value of its attribute `xfs:autofsck`.
    pub(super) autofsck: Option<Autofsck>,
    pub(super) inherited: Inherited,
}

/// The division of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AgPlan {
    /// The log, or an empty run.
    pub(super) log: GroupRun,
    pub(super) agfl: GroupRun,
    /// The chunk of inodes, or an empty run.
    pub(super) inodes: GroupRun,
    /// The realtime bitmap and summary, or an empty run.
    pub(super) realtime: GroupRun,
    /// Free runs in ascending order, some empty.
    pub(super) free: [GroupRun; 3],
}

/// A run of blocks of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupRun {
    pub(super) start: u32,
    pub(super) len: u32,
}

impl GroupRun {
    pub(super) const fn end(self) -> u32 {
        self.start + self.len
    }
}

impl Layout {
    /// Returns the size of the file system in bytes: all of its groups.
    #[must_use]
    pub(crate) fn size_bytes(&self) -> u64 {
        self.geometry.blocks << self.geometry.block_log
    }

    /// Returns the size of the log on another device, in bytes; `None` if the log is in the image.
    #[must_use]
    pub fn external_log_bytes(&self) -> Option<u64> {
        let blocks = u64::from(self.superblock.logblocks.get());
        (self.superblock.logstart.get() == 0).then_some(blocks << self.geometry.block_log)
    }

    /// Returns the block size in bytes.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        1 << self.geometry.block_log
    }

    /// Refuses a file system with one allocation group: xfs_repair(8) refuses to check it without a copy of the
    /// superblock.
    ///
    /// # Errors
    /// `Invalid` for one group.
    pub fn require_copy(&self) -> Result<()> {
        if self.geometry.ag_count >= 2 {
            return Ok(());
        }
        Err(Error::Invalid(
            "Filesystem must have at least 2 superblocks for redundancy! xfs_repair refuses an \
             image with one allocation group; create at least two of at least 16 MiB",
        ))
    }

    /// Returns the future superblock. With realtime groups, its counts are estimates.
    #[must_use]
    pub fn superblock(&self) -> &RawSuperblock {
        self.with_groups.as_ref().map_or(&self.superblock, |with| &with.raw)
    }

    /// Returns the division of a group.
    pub(super) fn ag(&self, ag: AgNumber) -> AgPlan {
        let log_len = if ag == self.log_ag { self.log_len } else { 0 };
        let log_start = if log_len == 0 { self.body } else { self.log_start().0 };
        let log = GroupRun { start: log_start, len: log_len };
        // The AGFL takes the smallest free run that is long enough: that before an aligned log, if there is one.
        let is_before = log_start - self.body >= self.agfl_len;
        let agfl_start = if is_before { self.body } else { log.end() };
        let agfl = GroupRun { start: agfl_start, len: self.agfl_len };
        let free = if is_before { agfl.end() } else { self.body };
        let before_log = GroupRun { start: free, len: log_start - free };
        let used = agfl.end().max(log.end());
        let end = self.geometry.ag_len(ag);
        let align = self.first_alignment();
        let has_inodes = ag.0 == 0 || self.metadir_ag == Some(ag);
        let inodes = GroupRun {
            start: if has_inodes { used.next_multiple_of(align) } else { used },
            len: if has_inodes { self.geometry.chunk_blocks() } else { 0 },
        };
        let gap = GroupRun { start: used, len: inodes.start - used };
        let space_blocks = u32::try_from(self.space_blocks()).unwrap_or(u32::MAX);
        let space_blocks = space_blocks.min(end.saturating_sub(inodes.end()));
        let realtime =
            GroupRun { start: inodes.end(), len: if has_inodes { space_blocks } else { 0 } };
        let rest = GroupRun { start: realtime.end(), len: end.saturating_sub(realtime.end()) };
        AgPlan { log, agfl, inodes, realtime, free: [before_log, gap, rest] }
    }

    /// Returns the first block of the log in its group. Its address is aligned.
    fn log_start(&self) -> AgBlock {
        let of_block = |block| self.geometry.fs_block(self.log_ag, AgBlock(block)).0;
        let start = of_block(self.body).next_multiple_of(self.log_unit.into());
        AgBlock((start - of_block(0)) as u32)
    }

    /// Returns the alignment of the first chunk of inodes in blocks: a stripe unit of whole chunks, or that of all chunks.
    fn first_alignment(&self) -> u32 {
        let (own, unit) = (self.superblock.inoalignmt.get().max(1), self.superblock.unit.get());
        if own > 1 && unit > 0 && unit.is_multiple_of(own) { unit } else { own }
    }

    /// Returns the number of inodes in the blocks of a chunk.
    pub(super) fn inodes_made(&self) -> u32 {
        self.geometry.chunk_blocks() << self.geometry.inodes_per_block_log()
    }

    /// Returns the number of groups with a chunk.
    pub(super) fn chunks(&self) -> u32 {
        if self.metadir_ag.is_some_and(|ag| ag.0 != 0) { 2 } else { 1 }
    }

    /// Returns the first inode of the chunk of a group.
    pub(super) fn first_inode(&self, ag: AgNumber) -> AgIno {
        self.geometry.first_ino(AgBlock(self.ag(ag).inodes.start))
    }

    /// Returns the number of blocks of the headers in every group.
    pub(super) fn header_blocks(&self) -> u32 {
        header_blocks(&self.geometry)
    }
}

/// Returns the number of blocks of the four headers of a group.
fn header_blocks(geometry: &Geometry) -> u32 {
    ((AGFL_SECTOR + 1) << geometry.sector_log).div_ceil(1 << geometry.block_log)
}

pub(super) fn plan(options: &Options) -> Result<Layout> {
    options.check_sizes()?;
    let features = options.resolved_features()?;
    let groups = numbers::groups(options)?;
    if options.log_group.is_some_and(|group| group >= groups.ag_count) {
        return Err(Error::Invalid("the log must be in one of the allocation groups"));
    }
    let mut superblock = fixed_superblock(options, &features, groups);
    let with_groups = match options.realtime.filter(|_| features.incompat(Incompat::METADIR)) {
        Some(section) => {
            realtime_group_fields::set_fields(options, &section, &features, &mut superblock)?
        }
        None => {
            realtime_fields::set_fields(options, &mut superblock)?;
            None
        }
    };
    let geometry = Geometry::new(&Superblock { raw: superblock.clone(), features });
    let (roots, body) = place_roots(&geometry);
    let log_ag = AgNumber(options.log_group.unwrap_or(groups.ag_count / 2));
    let metadir_ag = if options.external_log { AgNumber(0) } else { log_ag };
    let mut layout = Layout {
        superblock,
        geometry,
        roots,
        body,
        agfl_len: agfl_len(&geometry),
        log_ag,
        log_len: 0,
        log_unit: options.log_stripe().map_or(1, |bytes| bytes / options.block_size),
        metadir_ag: features.incompat(Incompat::METADIR).then_some(metadir_ag),
        root: RootDirectory {
            uid: options.root_uid,
            gid: options.root_gid,
            permissions: options.root_permissions,
            time: options.time,
            autofsck: options.autofsck,
            inherited: options.inherited,
        },
        with_groups,
    };
    place_log(options, &mut layout)?;
    place_inodes(&mut layout)?;
    add_groups(&mut layout)?;
    Ok(layout)
}

/// Completes the superblock with realtime groups.
fn add_groups(layout: &mut Layout) -> Result<()> {
    let needed = layout.blocks_of_realtime_groups();
    let Some(with) = &mut layout.with_groups else { return Ok(()) };
    let section = with.raw.clone();
    with.raw = RawSuperblock {
        rblocks: section.rblocks,
        rextents: section.rextents,
        rextslog: section.rextslog,
        rbmblocks: section.rbmblocks,
        frextents: section.frextents,
        rgcount: section.rgcount,
        ..layout.superblock.clone()
    };
    let free = layout.superblock.fdblocks.get();
    with.raw.fdblocks = free.checked_sub(needed).ok_or(Error::NoSpace)?.into();
    Ok(())
}

/// Returns the superblock with all fields that follow from options and sizes.
fn fixed_superblock(
    options: &Options,
    features: &Features,
    groups: numbers::Groups,
) -> RawSuperblock {
    let mut sb = RawSuperblock::new_zeroed();
    let block_log = options.block_size.trailing_zeros() as u8;
    let inode_log = options.inode_size.trailing_zeros() as u8;
    sb.magicnum = MAGIC.into();
    sb.blocksize = options.block_size.into();
    sb.blocklog = block_log;
    sb.dblocks = groups.blocks.into();
    sb.uuid = options.uuid;
    sb.rextsize = (REALTIME_UNIT_BYTES >> block_log).max(1).into();
    sb.agblocks = groups.ag_blocks.into();
    sb.agcount = groups.ag_count.into();
    sb.agblklog = groups.ag_blocks.next_power_of_two().trailing_zeros() as u8;
    sb.sectsize = (options.sector_size as u16).into();
    sb.sectlog = options.sector_size.trailing_zeros() as u8;
    sb.inodesize = options.inode_size.into();
    sb.inodelog = inode_log;
    sb.inopblog = block_log - inode_log;
    sb.inopblock = (1_u16 << sb.inopblog).into();
    sb.fname[..options.label.len()].copy_from_slice(&options.label);
    let percent = numbers::inodes_percent_max(groups.blocks << block_log);
    sb.imax_pct = options.inodes_percent_max.unwrap_or(percent);
    sb.dirblklog = (options.dir_block_size().trailing_zeros() as u8) - block_log;
    set_alignment(&mut sb, features);
    set_features(&mut sb, features);
    set_stripe(&mut sb, options);
    sb.qflags = options.quota_flags.into();
    if features.incompat(Incompat::METADIR) {
        // The size of future groups.
        sb.rgblklog = REALTIME_GROUP_LOG - block_log;
        sb.rgextents = ((1 << sb.rgblklog) / sb.rextsize.get()).into();
    }
    // Sector sizes other than 512 bytes are stored for the log, too, whose records then consist of whole blocks.
    sb.logsunit = 1.into();
    if features.version_bits.contains(Version::SECTOR) {
        (sb.logsectlog, sb.logsectsize) = (sb.sectlog, sb.sectsize);
        sb.logsunit = options.block_size.into();
    }
    if let Some(bytes) = options.log_stripe() {
        sb.logsunit = bytes.into();
    }
    sb
}

/// Sets the stripes of the device.
fn set_stripe(sb: &mut RawSuperblock, options: &Options) {
    let stripe = options.stripe.and_then(|stripe| stripe.in_blocks(options.block_size));
    if let Some((unit, width)) = stripe {
        (sb.unit, sb.width) = (unit.into(), width.into());
        sb.versionnum = (sb.versionnum.get() | Version::DALIGN.bits()).into();
    }
}

/// Sets the alignment, in blocks, of whole and sparse inode chunks.
fn set_alignment(sb: &mut RawSuperblock, features: &Features) {
    let cluster = (INODE_CLUSTER_BYTES * (u32::from(sb.inodesize.get()) / 256)) >> sb.blocklog;
    if features.incompat(Incompat::SPINODES) {
        sb.spino_align = cluster.into();
        sb.inoalignmt = (INODES_PER_CHUNK << sb.inodelog >> sb.blocklog).into();
    } else {
        sb.inoalignmt = cluster.into();
    }
}

fn set_features(sb: &mut RawSuperblock, features: &Features) {
    sb.versionnum = (features.version_bits.bits() | u16::from(features.version)).into();
    sb.features2 = features.features2.bits().into();
    sb.bad_features2 = sb.features2;
    sb.features_ro_compat = features.ro_compat.bits().into();
    sb.features_incompat = features.incompat.bits().into();
}

/// The trees of a group in the order of their roots, with the feature that each requires.
pub(super) const TREES: [(AgTree, Option<RoCompat>); AG_TREES] = [
    (AgTree::Bno, None),
    (AgTree::Cnt, None),
    (AgTree::Ino, None),
    (AgTree::Fino, Some(RoCompat::FINOBT)),
    (AgTree::Rmap, Some(RoCompat::RMAPBT)),
    (AgTree::Refcount, Some(RoCompat::REFLINK)),
];

/// Places the roots one after another, after the headers. Returns the first block after them, too.
pub(super) fn place_roots(geometry: &Geometry) -> ([Option<AgBlock>; AG_TREES], u32) {
    let mut roots = [None; AG_TREES];
    let mut next = header_blocks(geometry);
    for (tree, feature) in TREES {
        if feature.is_none_or(|feature| geometry.features.ro_compat(feature)) {
            roots[tree as usize] = Some(AgBlock(next));
            next += 1;
        }
    }
    (roots, next)
}

/// Returns the number of blocks that the AGFL must have while all trees have one level: two for each tree that it
/// supplies, unless that tree can never get a second level.
pub(super) fn agfl_len(geometry: &Geometry) -> u32 {
    // The leaves of a tree with more than one block are at least half full.
    let leaf_min = |shape: TreeShape| shape.leaf_area(geometry).min() as u32;
    let space_grows = geometry.ag_blocks.div_ceil(2) > leaf_min(TreeShape::BNO);
    let has_rmap = geometry.features.ro_compat(RoCompat::RMAPBT);
    // With shared blocks, the number of reverse-map records is unlimited.
    let rmap_grows = has_rmap
        && (geometry.features.ro_compat(RoCompat::REFLINK)
            || geometry.ag_blocks > leaf_min(TreeShape::RMAP));
    4 * u32::from(space_grows) + 2 * u32::from(rmap_grows)
}

/// Places the log: in the middle group, or on another device.
fn place_log(options: &Options, layout: &mut Layout) -> Result<()> {
    let geometry = &layout.geometry;
    let unit = layout.log_unit;
    let min = match layout.with_groups {
        Some(_) => log_size::blocks_min_with_realtime(geometry),
        None => log_size::blocks_min(geometry),
    };
    let min = min + options.log_stripe().map_or(0, |_| log_size::blocks_of_stripes(unit));
    let min = min.max(log_size::for_atomic_writes(options));
    // Blocks in use in the group without the log. After the log, inodes may need alignment again.
    let others = layout.ag(layout.log_ag).inodes;
    let slack = if others.len == 0 { 1 } else { layout.first_alignment() + 1 };
    let used = others.end() + slack + (layout.log_start().0 - layout.body);
    let fit = match options.external_log {
        true => u32::MAX,
        false => geometry.ag_len(layout.log_ag).saturating_sub(used),
    };
    let log_len = numbers::log_blocks(options, geometry.blocks, min, fit.into())?;
    if options.log_bytes.is_some() && !log_len.is_multiple_of(unit) {
        return Err(Error::Invalid("the log size must be a multiple of the log stripe unit"));
    }
    let whole = log_len.next_multiple_of(unit);
    let is_possible = whole <= fit && numbers::is_log_length(options, whole.into());
    let log_len = if is_possible { whole } else { log_len - log_len % unit };
    let log_bytes = u64::from(log_len) << geometry.block_log;
    if options.only_supported && log_bytes < numbers::LOG_BYTES_USUAL_MIN {
        return Err(Error::Invalid(
            "Log size must be at least 64MiB. Choose a larger log, or fewer or larger allocation groups",
        ));
    }
    layout.superblock.logblocks = log_len.into();
    if options.external_log {
        return Ok(());
    }
    layout.log_len = log_len;
    let start = geometry.fs_block(layout.log_ag, layout.log_start());
    layout.superblock.logstart = start.0.into();
    Ok(())
}

/// Numbers the first inodes, and counts the free blocks.
fn place_inodes(layout: &mut Layout) -> Result<()> {
    let geometry = layout.geometry;
    let inodes = layout.ag(AgNumber(0)).inodes;
    if inodes.end() > geometry.ag_len(AgNumber(0)) {
        return Err(Error::NoSpace);
    }
    if u64::from(layout.ag(AgNumber(0)).realtime.len) < layout.space_blocks() {
        return Err(Error::Invalid(
            "the bitmap of the realtime section does not fit into the first allocation group; \
             increase the realtime extent size",
        ));
    }
    let Ino(root) = geometry.ino(AgNumber(0), layout.first_inode(AgNumber(0)));
    let count = u64::from(layout.inodes_made() * layout.chunks());
    let (free, has_metadir) = (layout.free_blocks(), layout.metadir_ag.is_some());
    let sb = &mut layout.superblock;
    sb.rootino = root.into();
    if has_metadir {
        sb.metadirino = (root + 1).into();
    } else {
        sb.rbmino = (root + 1).into();
        sb.rsumino = (root + 2).into();
    }
    sb.icount = count.into();
    sb.ifree = (count - u64::from(INODES_USED)).into();
    sb.fdblocks = free.into();
    Ok(())
}

impl Layout {
    /// Returns the number of blocks that count as free, including those of the AGFLs.
    fn free_blocks(&self) -> u64 {
        let free = |ag| {
            let plan = self.ag(ag);
            u64::from(plan.agfl.len) + plan.free.iter().map(|run| u64::from(run.len)).sum::<u64>()
        };
        self.geometry.ags().map(free).sum()
    }
}
