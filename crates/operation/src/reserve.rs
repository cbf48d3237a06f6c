//! The reserve: free space that only what gives space back may take.
//!
//! To take a block out of the middle of an extent makes two extents of one, and the map may need a block
//! for the second. On a full file system that block comes from here, so that freeing never fails for want
//! of space. What is freed fills the reserve up again before anybody else gets any of it.
//!
//! The reserve is divided among the groups of a file system, each of which holds its own share back. So
//! an allocation compares a group's free space with a number, and looks at nothing that threads share; a
//! group's own trees find room in the group; and what ordinary operations can take is a sum over groups.
//! An image in progress has none until it is finished: its builder may use all of it.

/// What of the reserve an operation may take. In ascending order: each may have what the ones before may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// Nothing.
    #[default]
    Ordinary,
    /// Half of it: what was promised before must be kept, such as writing to space allocated in advance,
    /// and must leave enough for what frees.
    Promised,
    /// All of it: space is given back, or what a crash left is brought to its end.
    Freeing,
    /// There is no reserve yet: the image is being made, and nobody relies on it.
    Unbounded,
}

impl Claim {
    /// How much of a group's share of the reserve must be left free.
    #[must_use]
    pub const fn withheld(self, share: u32) -> u32 {
        match self {
            Self::Ordinary => share,
            Self::Promised => share - share / 2,
            Self::Freeing | Self::Unbounded => 0,
        }
    }
}

/// How large a reserve is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveSize {
    /// Of a group's space at most one in so many.
    pub one_in: u32,
    /// Of all groups together at most so much.
    pub total_max: u64,
}

impl ReserveSize {
    /// The share of group `index` of `count`, which has `len` blocks or clusters. The shares of all groups
    /// together are at most [`ReserveSize::total_max`], and no group's is more than its part of that,
    /// rounded up.
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
    fn who_frees_may_take_what_others_may_not() {
        let left = [Claim::Ordinary, Claim::Promised, Claim::Freeing].map(|c| c.withheld(5));
        assert_eq!(left, [5, 3, 0]);
        assert!(Claim::Ordinary < Claim::Promised && Claim::Promised < Claim::Freeing);
    }
}
