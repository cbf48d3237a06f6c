//! The minimum size of the log.
//!
//! The log must have room for several of the largest transactions, whose size depends on the kernel's code rather than
//! on the format. mkfs.xfs computes it. These are its results, observed over all block and directory block sizes. Some
//! feature combinations would allow a smaller log than given here.

use super::options::Options;
use crate::format::features::{Incompat, RoCompat, Version};
use crate::format::geometry::Geometry;

/// Minimum number of log blocks by block size, from 1 to 64 KiB.
struct Fewest {
    /// With allocation groups up to [`SMALL_AG_BYTES`].
    small: [u64; 7],
    /// With groups of up to 1 TiB, whose trees have more levels.
    large: [u64; 7],
}

/// Maximum size of allocation groups in images below 300 MiB, in bytes.
const SMALL_AG_BYTES: u64 = 75 << 20;

/// With parent pointers and large extent counters, and directory blocks of 4 KiB or the block size.
const USUAL: Fewest = Fewest {
    small: [4862, 3172, 2001, 1766, 1429, 1157, 1127],
    large: [4862, 3172, 2004, 1766, 1429, 1157, 1127],
};
/// [`USUAL`] with sectors larger than 512 bytes.
const USUAL_LARGE_SECTORS: Fewest = Fewest {
    small: [3348, 2433, 1650, 1608, 1368, 1146, 1140],
    large: [4862, 3172, 2004, 1766, 1429, 1157, 1140],
};
/// [`USUAL`] without large extent counters.
const SMALL_COUNTS: Fewest = Fewest {
    small: [4154, 2472, 1568, 1111, 998, 942, 700],
    large: [4536, 3018, 2004, 1638, 1275, 1102, 852],
};
/// Without parent pointers.
const NO_PARENTS: Fewest = Fewest {
    small: [5363, 4266, 3075, 2810, 2671, 2213, 1984],
    large: [7307, 5490, 4287, 3992, 3264, 3192, 2766],
};
/// Without parent pointers, and without reverse map or shared blocks.
const NO_PARENTS_NO_SHARING: Fewest = Fewest {
    small: [8681, 6115, 4049, 3739, 2270, 2200, 512],
    large: [8681, 6115, 4049, 3739, 2270, 2200, 1105],
};
/// [`NO_PARENTS_NO_SHARING`] without large extent counters.
const OLD: Fewest = Fewest {
    small: [3527, 2484, 1368, 1128, 1002, 548, 512],
    large: [5471, 3708, 2580, 2310, 1589, 1527, 1105],
};
/// [`USUAL`] with directory blocks above 4 KiB: by block size, then by directory block size from 8 KiB or twice the
/// block size on, up to 64 KiB.
const LARGE_DIR_BLOCKS: [&[u64]; 6] = [
    &[5867, 7757, 11597, 21464],
    &[3618, 4511, 6326, 9956],
    &[2218, 2666, 3548, 5310],
    &[1979, 2413, 3282],
    &[1645, 2075],
    &[1369],
];
/// Additional log bytes for each byte of inode size above 512.
const PER_INODE_BYTE: u64 = 76;
/// With sectors larger than 512 bytes, one in this many blocks is added, except for [`USUAL_LARGE_SECTORS`].
const LARGE_SECTORS_SHARE: u64 = 10;

/// Log bytes for each block of an atomic write, and for the rest of its transactions.
const PER_ATOMIC_BLOCK: u64 = 3175;
const ATOMIC_WRITES_BASE: u64 = 3 << 20;
/// Log bytes for atomic writes that the log has room for anyway.
const ATOMIC_WRITES_FREE: u64 = 2 << 20;

/// Returns the additional log blocks for stripes of `unit` blocks, because each write is rounded up to whole stripes.
/// At least as many as mkfs.xfs adds for units of up to 256 KiB, observed over features and block sizes.
pub(super) const fn blocks_of_stripes(unit: u32) -> u64 {
    50 * unit as u64
}

/// Returns the minimum number of log blocks for atomic writes. At least as many as mkfs.xfs demands, observed with blocks
/// of 1 to 64 KiB and writes of 64 KiB to 128 MiB.
pub(super) fn for_atomic_writes(options: &Options) -> u64 {
    let Some(bytes) = options.atomic_write_bytes else { return 0 };
    let block_size = u64::from(options.block_size);
    let log = (bytes / block_size).saturating_mul(PER_ATOMIC_BLOCK);
    match log {
        0..ATOMIC_WRITES_FREE => 0,
        _ => (log + ATOMIC_WRITES_BASE).div_ceil(block_size),
    }
}

/// Returns the minimum number of log blocks.
pub(crate) fn blocks_min(geometry: &Geometry) -> u64 {
    let size = usize::from(geometry.block_log - 10);
    let features = &geometry.features;
    let has_parents = features.incompat(Incompat::PARENT);
    let has_large_counts = features.incompat(Incompat::NREXT64);
    let shares = features.ro_compat.contains(RoCompat::RMAPBT | RoCompat::REFLINK);
    let large_sectors = features.version_bits.contains(Version::SECTOR);
    let fewest = match (has_parents, has_large_counts) {
        (true, true) if large_sectors => &USUAL_LARGE_SECTORS,
        (true, true) => &USUAL,
        (true, false) => &SMALL_COUNTS,
        (false, _) if shares => &NO_PARENTS,
        (false, true) => &NO_PARENTS_NO_SHARING,
        (false, false) => &OLD,
    };
    let is_small = u64::from(geometry.ag_blocks) << geometry.block_log <= SMALL_AG_BYTES;
    let table = if is_small { &fewest.small } else { &fewest.large };
    let inodes = (geometry.inode_size() as u64 - 512) * PER_INODE_BYTE;
    let inodes = inodes.div_ceil(geometry.block_size() as u64);
    let is_exact = !large_sectors || has_parents && has_large_counts;
    let sectors = if is_exact { 0 } else { table[size] / LARGE_SECTORS_SHARE };
    table[size].max(for_dir_blocks(geometry)) + inodes + sectors
}

/// Returns the minimum number of log blocks of a file system with a realtime section. At least as many as mkfs.xfs
/// demands: it adds up to 46 % for shared blocks in realtime groups.
pub(crate) fn blocks_min_with_realtime(geometry: &Geometry) -> u64 {
    let min = blocks_min(geometry);
    let features = &geometry.features;
    let shares = features.incompat(Incompat::METADIR) && features.ro_compat(RoCompat::REFLINK);
    if shares { min + min / 2 } else { min }
}

/// Returns the minimum for large directory blocks; 0 for the default size.
fn for_dir_blocks(geometry: &Geometry) -> u64 {
    let default_log = geometry.block_log.max(12);
    let Some(step) = geometry.dir_block_log.checked_sub(default_log + 1) else { return 0 };
    let row = LARGE_DIR_BLOCKS.get(usize::from(geometry.block_log - 10));
    row.and_then(|row| row.get(usize::from(step))).copied().unwrap_or(0)
}
