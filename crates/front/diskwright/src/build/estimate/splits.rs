//! Simulation of a hash index whose leaves are split in half when full.
//!
//! The average fill of leaves depends on the time of the last splits. With evenly distributed hashes all leaves split
//! at about the same time, so the fill varies between half and full. Therefore the splits are simulated with hashes and
//! sizes.

use std::collections::BTreeMap;

/// Maximum number of simulated leaves. If there are more, those with the lower hashes are extrapolated.
const LEAVES_MAX: usize = 4096;

/// Leaves of one directory.
#[derive(Debug)]
pub(super) struct Splits {
    /// Leaf size in bytes.
    room: u32,
    /// Leaves by their lowest possible hash.
    leaves: BTreeMap<u32, Leaf>,
    /// Upper limit of the simulated hashes.
    hash_max: u32,
    /// Numbers of all entries and of simulated entries.
    entries: u64,
    followed: u64,
}

#[derive(Debug, Default)]
struct Leaf {
    used: u32,
    items: Vec<SplitEntry>,
}

/// Entry of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SplitEntry {
    pub(super) hash: u32,
    /// Size in a leaf, in bytes.
    pub(super) size: u16,
}

impl Splits {
    /// Creates leaves of `room` bytes with initial entries.
    pub(super) fn new(room: u32, items: &[SplitEntry]) -> Self {
        let leaves = BTreeMap::from([(0, Leaf::default())]);
        let mut splits = Self { room, leaves, hash_max: u32::MAX, entries: 0, followed: 0 };
        for item in items {
            splits.add(*item);
        }
        splits
    }

    /// Adds an entry.
    pub(super) fn add(&mut self, item: SplitEntry) {
        self.entries += 1;
        if item.hash > self.hash_max {
            return;
        }
        self.followed += 1;
        let Some((_, leaf)) = self.leaves.range_mut(..=item.hash).next_back() else { return };
        leaf.used += u32::from(item.size);
        leaf.items.push(item);
        if leaf.used > self.room
            && let Some((start, upper)) = leaf.split()
        {
            self.leaves.insert(start, upper);
            if self.leaves.len() > LEAVES_MAX {
                self.follow_half();
            }
        }
    }

    /// Returns the estimated number of leaves.
    pub(super) fn leaves(&self) -> u64 {
        let leaves = self.leaves.len() as u128 * u128::from(self.entries);
        u64::try_from(leaves.div_ceil(u128::from(self.followed.max(1)))).unwrap_or(u64::MAX).max(1)
    }

    /// Stops simulating the upper half of the leaves.
    fn follow_half(&mut self) {
        let Some(&start) = self.leaves.keys().nth(LEAVES_MAX / 2) else { return };
        let upper = self.leaves.split_off(&start);
        self.hash_max = start - 1;
        self.followed -= upper.values().map(|leaf| leaf.items.len() as u64).sum::<u64>();
    }
}

impl Leaf {
    /// Removes the upper half of the bytes and returns it with its first hash. Returns `None` if all hashes are equal.
    fn split(&mut self) -> Option<(u32, Self)> {
        self.items.sort_by_key(|item| item.hash);
        let (mut below, half) = (0, self.used / 2);
        let mut at = self.items.iter().position(|item| {
            below += u32::from(item.size);
            below > half
        })?;
        // Entries with equal hashes stay in one leaf.
        let first = self.items.first()?.hash;
        let mut start = self.items[at].hash;
        if start == first {
            start = self.items.iter().map(|item| item.hash).find(|&hash| hash != first)?;
        }
        at = self.items.partition_point(|item| item.hash < start);
        let items = self.items.split_off(at);
        let used = items.iter().map(|item| u32::from(item.size)).sum();
        self.used -= used;
        Some((start, Self { used, items }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(number: u32, size: u16) -> SplitEntry {
        SplitEntry { hash: number.wrapping_mul(0x9e37_79b9), size }
    }

    #[test]
    fn leaves_are_split_in_half() {
        let mut splits = Splits::new(4096, &[]);
        for number in 0..4096 / 16 {
            splits.add(item(number, 16));
        }
        assert_eq!(splits.leaves(), 1);
        splits.add(item(5000, 16));
        assert_eq!(splits.leaves(), 2);
        let same = vec![SplitEntry { hash: 7, size: 16 }; 1000];
        assert_eq!(Splits::new(4096, &same).leaves(), 1);
    }

    #[test]
    fn a_part_of_many_leaves_stands_for_all() {
        let mut all = Splits::new(256, &[]);
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..400_000 {
            all.add(SplitEntry { hash: rng.u32(..), size: 16 });
        }
        assert!(all.leaves.len() <= LEAVES_MAX && all.followed < 100_000);
        // 25,000 leaves if all were full; here each is between half full and full.
        let leaves = all.leaves();
        assert!((33_000..40_000).contains(&leaves), "{leaves}");
    }
}
