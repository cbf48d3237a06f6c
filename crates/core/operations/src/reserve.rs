//! The reserve: free space that only operations that free space may use.
//!
//! Removing a block from the middle of an extent splits the extent, and the map may need a block for the second half.
//! On a full file system that block comes from the reserve, so that freeing never fails due to lack of space. Freed
//! space refills the reserve before other operations can use it.
//!
//! The reserve is divided among the groups of a file system, each of which withholds its own share. So an allocation
//! compares a group's free space with a constant and reads no shared state, a group's own trees find space in the
//! group, and the space available to ordinary operations is a sum over groups. An image in progress has no reserve: its
//! builder may use all space.

/// The part of the reserve that an operation may use, in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// Nothing.
    #[default]
    Ordinary,
    /// Half of it, for earlier promises such as writes to preallocated space. The rest stays for operations that free
    /// space.
    Promised,
    /// All of it, for operations that free space or finish recovery.
    Freeing,
    /// There is no reserve: the image is in progress.
    Unbounded,
}

impl Claim {
    /// Returns the part of a group's share that must stay free.
    #[must_use]
    pub const fn withheld(self, share: u32) -> u32 {
        match self {
            Self::Ordinary => share,
            Self::Promised => share - share / 2,
            Self::Freeing | Self::Unbounded => 0,
        }
    }
}

/// Size of a reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveSize {
    /// The reserve of a group is at most 1/`one_in` of its space.
    pub one_in: u32,
    /// Maximum of all groups together.
    pub total_max: u64,
}

impl ReserveSize {
    /// Returns the share of group `index` of `count`, which has `len` blocks or clusters. The sum of all shares is at
    /// most [`ReserveSize::total_max`], and each share is at most its group's part of that, rounded up.
    #[must_use]
    pub fn share(&self, index: u32, count: u32, len: u32) -> u32 {
        let until = |groups: u64| self.total_max.saturating_mul(groups) / u64::from(count.max(1));
        let part = until(u64::from(index) + 1).saturating_sub(until(index.into()));
        (len / self.one_in.max(1)).min(u32::try_from(part).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: ReserveSize = ReserveSize { one_in: 50, total_max: 4096 };

    #[test]
    fn shares_are_a_part_of_each_group_and_bounded_together() {
        assert_eq!(SIZE.share(0, 1, 1_000), 20);
        assert_eq!(SIZE.share(0, 1, 10_000_000), 4096);
        for count in [1, 3, 7, 4096, 5000, 100_000] {
            let shares = (0..count).map(|index| u64::from(SIZE.share(index, count, 32768)));
            let expected = (u64::from(count) * (32768 / 50)).min(4096);
            assert_eq!(shares.sum::<u64>(), expected, "{count} groups");
        }
    }

    #[test]
    fn operations_that_free_space_can_use_the_reserve() {
        let left = [Claim::Ordinary, Claim::Promised, Claim::Freeing].map(|c| c.withheld(5));
        assert_eq!(left, [5, 3, 0]);
        assert!(Claim::Ordinary < Claim::Promised && Claim::Promised < Claim::Freeing);
    }
}
