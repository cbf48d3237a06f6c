//! Checks fields of any superblock that are not needed to use it.

use vfs::check::Finding;

use super::codes;
use super::context::Context;
use crate::format::address::AgNumber;
use crate::format::features::{Incompat, Version};
use crate::format::geometry::INODES_PER_CHUNK;
use crate::format::quota::flags_of_other_version;
use crate::format::realtime::space::SpaceLayout;
use crate::format::superblock::RawSuperblock;

/// Size of the inode cluster that old kernels read at once, in bytes, and the minimum inode size.
const CLUSTER_BYTES: u32 = 8192;
const INODE_SIZE_MIN: u32 = 256;
/// Size of a chunk of the largest inodes, in bytes.
const CHUNK_BYTES_MAX: u64 = 64 * 2048;
/// Maximum size of a log record, in bytes, which limits the stripe unit of the log.
const LOG_UNIT_MAX: u32 = 256 << 10;
/// Minimum and maximum size of an extent of a realtime device, in bytes (`XFS_MIN_RTEXTSIZE`, `XFS_MAX_RTEXTSIZE`).
pub(crate) const REALTIME_EXTENT_MIN: u64 = 4 << 10;
const REALTIME_EXTENT_MAX: u64 = 1 << 30;
/// Minimum sector size, as a power of two.
const SECTOR_LOG_MIN: u8 = 9;

/// Checks fields of any superblock that are not needed to use it.
pub(super) fn check_alone(ctx: &Context<'_>, ag: AgNumber, raw: &RawSuperblock) {
    ctx.check_lsn(raw.lsn.get(), || Finding::new(codes::LSN).in_group(ag.0).field("sb_lsn"));
    let code = if ag.0 == 0 { codes::SUPERBLOCK_FIELD } else { codes::SUPERBLOCK_COPY };
    let tell = |field, expected: &str, found: String| {
        ctx.found(Finding::new(code).in_group(ag.0).field(field).mismatch(expected, found));
    };
    let (unit, width) = (raw.unit.get(), raw.width.get());
    let bits = raw.features().version_bits;
    let is_right = match bits.contains(Version::DALIGN) {
        true => is_stripe(raw),
        false => unit == 0 && width == 0,
    };
    if !is_right {
        tell("sb_unit", "a valid stripe unit and width", format!("{unit}, {width}"));
    }
    if !is_sparse_alignment_right(raw) {
        let found = format!("{}, {}", raw.inoalignmt, raw.spino_align);
        tell("sb_spino_align", "those of sparse chunks", found);
    }
    if !is_chunk_alignment_right(raw) {
        tell("sb_inoalignmt", "an alignment of chunks", raw.inoalignmt.to_string());
    }
    if raw.imax_pct > 100 {
        tell("sb_imax_pct", "0 to 100", raw.imax_pct.to_string());
    }
    if raw.flags != 0 {
        tell("sb_flags", "0", raw.flags.to_string());
    }
    for (field, expected, found) in realtime_fields(raw) {
        if expected != found {
            tell(field, &expected.to_string(), found.to_string());
        }
    }
    if !is_realtime_extent(raw) {
        tell("sb_rextsize", "4 KiB to 1 GiB", format!("{} blocks", raw.rextsize));
    }
    if !are_realtime_groups_right(raw) {
        let found = format!("{}, {}, {}", raw.rgcount, raw.rgextents, raw.rgblklog);
        tell("sb_rgextents", "valid realtime groups", found);
    }
    if raw.shared_vn != 0 {
        tell("sb_shared_vn", "0", raw.shared_vn.to_string());
    }
    // Old kernels stored the field at a wrong offset; all later writers keep both equal.
    if raw.bad_features2 != raw.features2 {
        tell("sb_bad_features2", "the value of sb_features2", format!("{:#x}", raw.bad_features2));
    }
    if !are_bits_right(raw) {
        let found = format!("{:#x}", raw.versionnum.get());
        tell("sb_versionnum", "bits that match the sector size and the version", found);
    }
    if !is_log_shape_right(raw) {
        let found = format!("{}, {}, {}", raw.logsunit, raw.logsectsize, raw.logsectlog);
        tell("sb_logsunit", "a valid log unit and sector size", found);
    }
    check_quota(raw, tell);
}

/// Returns whether the version bits match the sector sizes, and the requirements of version 5.
pub(crate) fn are_bits_right(raw: &RawSuperblock) -> bool {
    let features = raw.features();
    let are_sectors_right = match features.version_bits.contains(Version::SECTOR) {
        true => raw.logsectsize.get() != 0,
        false => raw.sectlog == SECTOR_LOG_MIN,
    };
    let bits = features.version_bits;
    let is_of_version = bits.contains(Version::OF_VERSION_5) && !bits.contains(Version::SHARED);
    are_sectors_right && (is_of_version || !features.crc())
}

/// Returns whether sectors of the image or of its log are larger than the minimum.
pub(crate) const fn has_large_sectors(raw: &RawSuperblock) -> bool {
    raw.sectlog > SECTOR_LOG_MIN || raw.logsectlog > SECTOR_LOG_MIN
}

/// Returns whether stripe unit and width match each other and the groups.
pub(crate) fn is_stripe(raw: &RawSuperblock) -> bool {
    let (unit, width) = (raw.unit.get(), raw.width.get());
    unit > 0 && unit < raw.agblocks.get() && width >= unit && width.is_multiple_of(unit)
}

/// Returns the alignment of chunks if they are aligned and none is sparse.
pub(crate) fn chunk_alignment(raw: &RawSuperblock) -> u32 {
    let scale =
        if raw.features().crc() { u32::from(raw.inodesize.get()) / INODE_SIZE_MIN } else { 1 };
    CLUSTER_BYTES.saturating_mul(scale).checked_shr(raw.blocklog.into()).unwrap_or(0)
}

/// Returns whether the alignment of chunks is valid.
pub(crate) fn is_chunk_alignment_right(raw: &RawSuperblock) -> bool {
    let align = raw.inoalignmt.get();
    let is_aligned = raw.features().version_bits.contains(Version::ALIGN);
    !is_aligned
        || chunk_alignment(raw) == 0
        || sparse_alignment(raw).is_some()
        || align.is_power_of_two() && u64::from(align) << raw.blocklog.min(31) <= CHUNK_BYTES_MAX
}

/// Returns the fields of the realtime section that follow from its size, with expected and actual values. All are 0
/// without a section.
fn realtime_fields(raw: &RawSuperblock) -> Vec<(&'static str, u64, u64)> {
    let expected = RealtimeFields::of(raw);
    let mut fields = vec![
        ("sb_rextents", expected.extents, raw.rextents.get()),
        ("sb_rbmblocks", expected.bitmap_blocks, raw.rbmblocks.get().into()),
        ("sb_rextslog", expected.extents_log.into(), raw.rextslog.into()),
    ];
    if expected.extents == 0 {
        fields.push(("sb_frextents", 0, raw.frextents.get()));
    }
    fields
}

/// Fields of the realtime section that follow from its size. All are 0 without a section.
pub(crate) struct RealtimeFields {
    /// `sb_rextents`.
    pub(crate) extents: u64,
    /// `sb_rbmblocks`.
    pub(crate) bitmap_blocks: u64,
    /// `sb_rextslog`.
    pub(crate) extents_log: u8,
}

impl RealtimeFields {
    /// Returns the fields that follow from the others of a superblock.
    pub(crate) fn of(raw: &RawSuperblock) -> Self {
        let extents = raw.rblocks.get().checked_div(raw.rextsize.get().into()).unwrap_or(0);
        // A copy may have any value; the first superblock has a valid one.
        let has_groups = raw.features().incompat(Incompat::METADIR);
        // Zones have no bitmap.
        let is_zoned = raw.features().incompat(Incompat::ZONED);
        let space = SpaceLayout::new(raw.blocklog.clamp(9, 16), extents, has_groups);
        let space = match has_groups && extents > 0 {
            true => space.of_group(raw.rgextents.get().into(), 0),
            false => space,
        };
        let bitmap_blocks = if is_zoned { 0 } else { space.bitmap_blocks() };
        let extents_log = extents.checked_ilog2().map_or(0, |log| log as u8);
        Self { extents, bitmap_blocks, extents_log }
    }
}

/// Returns whether the size of a realtime extent is valid, even without a realtime device.
pub(crate) fn is_realtime_extent(raw: &RawSuperblock) -> bool {
    let bytes = u64::from(raw.rextsize.get()) << raw.blocklog.min(31);
    (REALTIME_EXTENT_MIN..=REALTIME_EXTENT_MAX).contains(&bytes)
}

/// Returns whether the geometry of realtime groups is valid, which exists even without a realtime device if there is a
/// metadata directory.
pub(crate) fn are_realtime_groups_right(raw: &RawSuperblock) -> bool {
    let blocks = u64::from(raw.rgextents.get()) * u64::from(raw.rextsize.get());
    let log = u64::BITS - blocks.saturating_sub(1).leading_zeros();
    !raw.features().incompat(Incompat::METADIR)
        || blocks != 0
            && u32::from(raw.rgblklog) == log
            && (raw.rblocks.get() != 0 || raw.rgcount.get() == 0)
}

/// Checks that the indications of quotas agree.
fn check_quota(raw: &RawSuperblock, tell: impl Fn(&'static str, &str, String)) {
    if flags_of_other_version(raw) != 0 {
        tell("sb_qflags", "flags of its version", format!("{:#x}", raw.qflags));
    }
    let is_none = |ino: u64| [0, u64::MAX].contains(&ino);
    let has_quota = raw.features().version_bits.contains(Version::QUOTA);
    if raw.features().incompat(Incompat::METADIR) {
        let inodes = [
            ("sb_rbmino", raw.rbmino.get()),
            ("sb_rsumino", raw.rsumino.get()),
            ("sb_uquotino", raw.uquotino.get()),
            ("sb_gquotino", raw.gquotino.get()),
            ("sb_pquotino", raw.pquotino.get()),
        ];
        for (field, ino) in inodes.iter().filter(|(_, ino)| *ino != 0) {
            tell(field, "0 with a metadata directory", ino.to_string());
        }
        if raw.qflags.get() != 0 && !has_quota {
            tell("sb_qflags", "0", raw.qflags.to_string());
        }
        return;
    }
    if has_quota {
        let files = [raw.uquotino.get(), raw.gquotino.get(), raw.pquotino.get()];
        if files.into_iter().all(is_none) {
            tell(
                "sb_versionnum",
                "quota inode numbers, or none",
                "quotas without a quota file".to_owned(),
            );
        }
        return;
    }
    // The third file is beyond the end of a superblock of version 4.
    let projects = if raw.features().crc() { raw.pquotino.get() } else { 0 };
    let quota = [
        ("sb_uquotino", raw.uquotino.get()),
        ("sb_gquotino", raw.gquotino.get()),
        ("sb_pquotino", projects),
    ];
    for (field, ino) in quota.iter().filter(|(_, ino)| !is_none(*ino)) {
        tell(field, "none", ino.to_string());
    }
    if raw.qflags.get() != 0 {
        tell("sb_qflags", "0", raw.qflags.to_string());
    }
}

/// Returns whether the log's stripe unit and sector size are valid: units must be whole blocks, and at most as long as
/// a record.
pub(crate) fn is_log_shape_right(raw: &RawSuperblock) -> bool {
    let bits = raw.features().version_bits;
    let (unit, size) = (raw.logsunit.get(), u32::from(raw.logsectsize.get()));
    let is_unit = !bits.contains(Version::LOGV2)
        || unit <= 1
        || unit <= LOG_UNIT_MAX && unit.is_multiple_of(raw.blocksize.get().max(1));
    let has_sectors = (SECTOR_LOG_MIN..=raw.sectlog).contains(&raw.logsectlog)
        && size == 1 << raw.logsectlog.min(31);
    is_unit && (has_sectors || (raw.logsectlog, size) == (0, 0))
}

/// Returns the alignment of whole and sparse chunks, if there are sparse ones: the size of a chunk, and of the inode
/// cluster of old kernels. `None` without sparse chunks, or if blocks contain several chunks.
pub(crate) fn sparse_alignment(raw: &RawSuperblock) -> Option<(u32, u32)> {
    let align =
        INODES_PER_CHUNK.checked_shl(raw.inodelog.into())?.checked_shr(raw.blocklog.into())?;
    let cluster = CLUSTER_BYTES.checked_mul(u32::from(raw.inodesize.get()) / INODE_SIZE_MIN)?;
    let sparse = cluster.checked_shr(raw.blocklog.into())?;
    let has_sparse = raw.features().incompat(Incompat::SPINODES);
    (has_sparse && align > 0 && sparse > 0).then_some((align, sparse.min(align)))
}

/// Returns whether the alignment of chunks is valid with regard to sparse chunks.
pub(crate) fn is_sparse_alignment_right(raw: &RawSuperblock) -> bool {
    let sparse = raw.spino_align.get();
    let features = raw.features();
    // Beyond the end of a superblock of version 4.
    if features.crc() && !features.incompat(Incompat::SPINODES) && sparse != 0 {
        return false;
    }
    sparse_alignment(raw).is_none_or(|(align, _)| {
        raw.inoalignmt.get() == align && sparse.is_power_of_two() && sparse <= align
    })
}
