//! The preferred place of new blocks of a file: at the same distance from a neighbouring extent as in the file.
//!
//! Write-back with several threads sends parts of a file out of order. Each part then leaves room for the missing ones,
//! so that the file is in order on the device at the end.

use std::ops::Range;

/// Maximum distance to the neighbour, as a multiple of the length of the new blocks. Small writes that are scattered in
/// a sparse file stay close together on the device.
const DISTANCE_FACTOR: u64 = 64;
/// Maximum distance to the neighbour, in bytes. The kernel has at most about 16 requests of 1 MiB in flight.
const DISTANCE_BYTES_MAX: u64 = 16 << 20;

/// The preferred place of new blocks in a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NearbyPlace {
    /// After the extent before the hole, or after the place where the file would begin.
    Behind {
        /// Number of blocks in between, which are left free.
        free: u64,
    },
    /// Before the extent after the hole, at the distance in the file.
    InFront,
}

/// Returns the place of the `new` blocks in a hole. `hole` is the end of the extent before it and the start of the
/// extent after it, as far as they exist.
#[must_use]
pub fn nearby_place(
    hole: (Option<u64>, Option<u64>),
    new: &Range<u64>,
    block_size_log: u32,
) -> NearbyPlace {
    let after = hole.1.map(|start| start.saturating_sub(new.end));
    // The start of the file has a place only if there is an extent.
    let before = match (hole, after) {
        ((Some(end), _), _) => new.start.saturating_sub(end),
        ((None, _), None) => new.start,
        ((None, _), Some(_)) => u64::MAX,
    };
    let len = new.end.saturating_sub(new.start);
    let distance_max = len.saturating_mul(DISTANCE_FACTOR);
    let distance_max = distance_max.min(DISTANCE_BYTES_MAX >> block_size_log);
    match after {
        Some(after) if after < before && after <= distance_max => NearbyPlace::InFront,
        _ if before <= distance_max => NearbyPlace::Behind { free: before },
        _ => NearbyPlace::Behind { free: 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearer_neighbour_counts_within_both_limits() {
        let place = |before, after, new| nearby_place((before, after), &new, 12);
        let behind = |free| NearbyPlace::Behind { free };
        assert_eq!(place(Some(10), Some(20), 10..20), behind(0));
        assert_eq!(place(Some(10), Some(20), 15..20), NearbyPlace::InFront);
        assert_eq!(place(Some(10), Some(20), 12..15), behind(2));
        assert_eq!(place(Some(10), None, 74..75), behind(64));
        assert_eq!(place(Some(10), None, 75..76), behind(0));
        assert_eq!(place(None, Some(76), 11..12), NearbyPlace::InFront);
        assert_eq!(place(None, Some(77), 11..12), behind(0));
        assert_eq!(place(None, None, 64..65), behind(64));
        assert_eq!(place(None, None, 65..66), behind(0));
        assert_eq!(place(Some(0), None, 4096..5000), behind(4096));
        assert_eq!(place(Some(0), None, 4097..5000), behind(0));
    }
}
