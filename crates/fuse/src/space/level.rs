//! How much may wait in the kernel's cache, by how much room there is.

/// The part of a file system's size that is free when writes begin to wait.
const NEAR_SHARE: u64 = 16;
/// Most and fewest bytes that are left then.
const NEAR_MAX: u64 = 16 << 20;
const NEAR_MIN: u64 = 2 << 20;

/// Of the room, the part that may wait in the cache: all that waits finds room, though more than is allowed
/// may come before the kernel notices.
const WAITING_SHARE: u64 = 4;

/// Of what is left when writes begin to wait, as many times may be of no use.
const USELESS_SHARE: u64 = 4;

/// What the kernel is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Level {
    /// Most bytes that wait in the cache; `None` for the kernel's own limit.
    pub(super) waiting_max: Option<u64>,
    /// Each write waits until it is stored.
    pub(super) through: bool,
}

/// What does not change during a mount.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes that are left when writes begin to wait.
    near: u64,
    /// The kernel's own limit of bytes that wait.
    own: u64,
}

impl Limits {
    /// The levels of a file system of so many bytes.
    pub(super) fn new(total: u64, own: u64) -> Self {
        Self { near: (total / NEAR_SHARE).clamp(NEAR_MIN, NEAR_MAX), own }
    }

    /// Of bytes that were free when a write found no room, those that are taken to be never of use: reserves
    /// that are not told. More is about that one write.
    pub(super) fn useless(&self, free: u64) -> u64 {
        free.min(self.near * USELESS_SHARE)
    }

    /// The level for so many free bytes, after another one.
    pub(super) fn level(&self, free: u64, before: Level) -> Level {
        // Not back and forth at each file that is removed.
        let until = if before.through { self.near + self.near / 2 } else { self.near };
        let waiting = (free / WAITING_SHARE).max(self.near / WAITING_SHARE);
        // In steps, so that the kernel is seldom told.
        let waiting = 1 << waiting.ilog2();
        let waiting_max = (waiting < self.own).then_some(waiting);
        Level { waiting_max, through: free < until }
    }

    /// Bytes that may be taken before somebody has to look again.
    pub(super) fn credit(&self, free: u64, level: Level) -> i64 {
        if level.through {
            // It gets no worse.
            return i64::MAX;
        }
        // What waits is not counted yet.
        let left = free.saturating_sub(self.near) / 2;
        i64::try_from(left.min(free / WAITING_SHARE)).unwrap_or(i64::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Level, Limits};

    const MIB: u64 = 1 << 20;

    #[test]
    fn far_from_full_nothing_is_different() {
        let limits = Limits::new(100 << 30, 46 * MIB);
        for free in [100 << 30, 1 << 30, 256 * MIB] {
            assert_eq!(limits.level(free, Level::default()), Level::default(), "{free}");
        }
    }

    #[test]
    fn the_less_room_the_less_waits_and_near_the_end_nothing() {
        let limits = Limits::new(224 * MIB, 46 * MIB);
        let level = |free| limits.level(free, Level::default());
        assert_eq!(level(224 * MIB), Level { waiting_max: Some(32 * MIB), through: false });
        assert_eq!(level(100 * MIB), Level { waiting_max: Some(16 * MIB), through: false });
        assert_eq!(level(15 * MIB), Level { waiting_max: Some(2 * MIB), through: false });
        assert!(level(13 * MIB).through && level(0).through);
        // It is not left as soon as it was entered.
        assert!(limits.level(20 * MIB, level(0)).through);
        assert!(!limits.level(21 * MIB, level(0)).through);
    }

    proptest! {
        #[test]
        fn what_waits_has_room(total in 1_u64..1 << 50, free in 0_u64..1 << 50, own in 0_u64..1 << 40) {
            let limits = Limits::new(total, own);
            let level = limits.level(free, Level::default());
            prop_assert!(level.through || level.waiting_max.unwrap_or(own) <= free / 4);
            let credit = limits.credit(free, level);
            prop_assert!(level.through || (credit > 0 && credit as u64 <= free / 4 + 1));
        }
    }
}
