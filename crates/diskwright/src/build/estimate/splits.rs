//! The leaves of an index of hashes that are split in half when they are full.
//!
//! How full leaves are on average depends on when they were split last, and with hashes that are spread
//! evenly they are all split at about the same time: anything from half to all of the room is used.
//! So the splits are followed, with hashes and sizes alone.

use std::collections::BTreeMap;

/// Leaves that are followed. Of more, those with the lower hashes stand for the others.
const LEAVES_MAX: usize = 4096;

/// The leaves of one directory.
#[derive(Debug)]
pub(super) struct Splits {
    /// Bytes of a leaf.
    room: u32,
    /// By the lowest hash that may be in it.
    leaves: BTreeMap<u32, Leaf>,
    /// Hashes above this are no longer followed.
    hash_max: u32,
    /// All entries, and those that are followed.
    entries: u64,
    followed: u64,
}

#[derive(Debug, Default)]
struct Leaf {
    used: u32,
    items: Vec<Item>,
}

/// An entry of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) hash: u32,
    /// Bytes that it takes in a leaf.
    pub(super) size: u16,
}

impl Splits {
    /// Leaves of `room` bytes with some entries.
    pub(super) fn new(room: u32, items: &[Item]) -> Self {
        let leaves = BTreeMap::from([(0, Leaf::default())]);
        let mut splits = Self { room, leaves, hash_max: u32::MAX, entries: 0, followed: 0 };
        for item in items {
            splits.add(*item);
        }
        splits
    }

    /// Adds an entry.
    pub(super) fn add(&mut self, item: Item) {
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

    /// Leaves that there are.
    pub(super) fn leaves(&self) -> u64 {
        let leaves = self.leaves.len() as u128 * u128::from(self.entries);
        u64::try_from(leaves.div_ceil(u128::from(self.followed.max(1)))).unwrap_or(u64::MAX).max(1)
    }

    /// Gives up the upper half.
    fn follow_half(&mut self) {
        let Some(&start) = self.leaves.keys().nth(LEAVES_MAX / 2) else { return };
        let upper = self.leaves.split_off(&start);
        self.hash_max = start - 1;
        self.followed -= upper.values().map(|leaf| leaf.items.len() as u64).sum::<u64>();
    }
}

impl Leaf {
    /// Gives away the upper half of the bytes, and says from which hash on. Nothing if all hashes are equal.
    fn split(&mut self) -> Option<(u32, Self)> {
        self.items.sort_by_key(|item| item.hash);
        let (mut below, half) = (0, self.used / 2);
        let mut at = self.items.iter().position(|item| {
            below += u32::from(item.size);
            below > half
        })?;
        // Entries of one hash stay together here.
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

    fn item(number: u32, size: u16) -> Item {
        Item { hash: number.wrapping_mul(0x9e37_79b9), size }
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
        let same = vec![Item { hash: 7, size: 16 }; 1000];
        assert_eq!(Splits::new(4096, &same).leaves(), 1);
    }

    #[test]
    fn a_part_of_many_leaves_stands_for_all() {
        let mut all = Splits::new(256, &[]);
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..400_000 {
            all.add(Item { hash: rng.u32(..), size: 16 });
        }
        assert!(all.leaves.len() <= LEAVES_MAX && all.followed < 100_000);
        // Of 25,000 full leaves, all used to between a half and all.
        let leaves = all.leaves();
        assert!((33_000..40_000).contains(&leaves), "{leaves}");
    }
}
