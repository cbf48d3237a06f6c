//! The smallest log a file system works with.

use crate::format::geometry::Geometry;

/// Fewest blocks of a log with the default features, by block size from 1 to 64 KiB, as mkfs.xfs 7.2
/// states them. Fewer features need less.
const BLOCKS_MIN: [u64; 7] = [4862, 3172, 2001, 1766, 1429, 1157, 1127];

/// Fewest blocks of the log.
pub(super) fn blocks_min(geometry: &Geometry) -> u64 {
    let at = usize::from(geometry.block_log.saturating_sub(10));
    BLOCKS_MIN.get(at).copied().unwrap_or(BLOCKS_MIN[6])
}
