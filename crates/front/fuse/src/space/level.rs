//! Limits of cached data, depending on the free space.

/// Writes become synchronous when the free space falls below 1/16 of the size.
const NEAR_SHARE: u64 = 16;
/// Maximum and minimum of that threshold in bytes.
const NEAR_MAX: u64 = 16 << 20;
const NEAR_MIN: u64 = 2 << 20;

/// Fraction of the free space that may wait in the cache. More may arrive before the kernel enforces a limit, and must
/// still fit.
const WAITING_SHARE: u64 = 4;

/// Maximum of unusable bytes, as a multiple of the threshold.
const USELESS_SHARE: u64 = 4;

/// Settings of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WritebackSettings {
    /// Maximum number of bytes in the cache; `None` for the kernel's own limit.
    pub(super) waiting_max: Option<u64>,
    /// True if each write is synchronous.
    pub(super) through: bool,
}

/// Constants of a mount.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpaceLimits {
    /// Threshold of free bytes below which writes are synchronous.
    near: u64,
    /// The kernel's own limit of cached bytes.
    own: u64,
}

impl SpaceLimits {
    /// Returns the limits for a file system of `total` bytes.
    pub(super) fn new(total: u64, own: u64) -> Self {
        Self { near: (total / NEAR_SHARE).clamp(NEAR_MIN, NEAR_MAX), own }
    }

    /// Returns the part of `free` bytes, at the time of a failed write, that is considered permanently unusable because
    /// of unreported reserves. A larger amount concerns that write only.
    pub(super) fn useless(&self, free: u64) -> u64 {
        free.min(self.near * USELESS_SHARE)
    }

    /// Returns the level for `free` bytes, after the level `before`.
    pub(super) fn level(&self, free: u64, before: WritebackSettings) -> WritebackSettings {
        // Hysteresis, to avoid switching at each removed file.
        let until = if before.through { self.near + self.near / 2 } else { self.near };
        let waiting = (free / WAITING_SHARE).max(self.near / WAITING_SHARE);
        // In powers of two, so that the kernel's settings change rarely.
        let waiting = 1 << waiting.ilog2();
        let waiting_max = (waiting < self.own).then_some(waiting);
        WritebackSettings { waiting_max, through: free < until }
    }

    /// Returns the number of bytes that may be taken before the next check.
    pub(super) fn credit(&self, free: u64, level: WritebackSettings) -> i64 {
        if level.through {
            // The level cannot become stricter.
            return i64::MAX;
        }
        // Cached data has not been counted yet.
        let left = free.saturating_sub(self.near) / 2;
        i64::try_from(left.min(free / WAITING_SHARE)).unwrap_or(i64::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{SpaceLimits, WritebackSettings};

    const MIB: u64 = 1 << 20;

    #[test]
    fn far_from_full_nothing_is_different() {
        let limits = SpaceLimits::new(100 << 30, 46 * MIB);
        for free in [100 << 30, 1 << 30, 256 * MIB] {
            assert_eq!(
                limits.level(free, WritebackSettings::default()),
                WritebackSettings::default(),
                "{free}"
            );
        }
    }

    #[test]
    fn the_limit_of_unwritten_data_follows_the_free_space() {
        let limits = SpaceLimits::new(224 * MIB, 46 * MIB);
        let level = |free| limits.level(free, WritebackSettings::default());
        assert_eq!(
            level(224 * MIB),
            WritebackSettings { waiting_max: Some(32 * MIB), through: false }
        );
        assert_eq!(
            level(100 * MIB),
            WritebackSettings { waiting_max: Some(16 * MIB), through: false }
        );
        assert_eq!(
            level(15 * MIB),
            WritebackSettings { waiting_max: Some(2 * MIB), through: false }
        );
        assert!(level(13 * MIB).through && level(0).through);
        // Hysteresis.
        assert!(limits.level(20 * MIB, level(0)).through);
        assert!(!limits.level(21 * MIB, level(0)).through);
    }

    proptest! {
        #[test]
        fn unwritten_data_has_space(total in 1_u64..1 << 50, free in 0_u64..1 << 50, own in 0_u64..1 << 40) {
            let limits = SpaceLimits::new(total, own);
            let level = limits.level(free, WritebackSettings::default());
            prop_assert!(level.through || level.waiting_max.unwrap_or(own) <= free / 4);
            let credit = limits.credit(free, level);
            prop_assert!(level.through || (credit > 0 && credit as u64 <= free / 4 + 1));
        }
    }
}
