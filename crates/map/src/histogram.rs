//! How many things there are of each size, by powers of two.

use serde::Serialize;

/// Things whose size is from one power of two up to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Least size.
    pub from: u64,
    /// Greatest size.
    pub to: u64,
    /// How many things there are.
    pub count: u64,
    /// Their sizes added up.
    pub sum: u64,
}

/// Counts of things by size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; 64],
    sums: [u64; 64],
    longest: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; 64], sums: [0; 64], longest: 0 }
    }
}

impl Histogram {
    /// Counts a thing of a size of at least 1.
    pub(crate) fn add(&mut self, size: u64) {
        let Some(bucket) = size.checked_ilog2() else { return };
        self.counts[bucket as usize] += 1;
        let sum = &mut self.sums[bucket as usize];
        *sum = sum.saturating_add(size);
        self.longest = self.longest.max(size);
    }

    /// The largest of all sizes.
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// How many things there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All sizes added up.
    pub fn sum(&self) -> u64 {
        self.sums.iter().fold(0, |sum, more| sum.saturating_add(*more))
    }

    /// The sizes from the smallest to the largest, empty ones in between included.
    pub fn buckets(&self) -> Vec<Bucket> {
        let is_used = |at: &usize| self.counts[*at] > 0;
        let Some(first) = (0..64).find(is_used) else { return Vec::new() };
        let last = (0..64).rfind(is_used).unwrap_or(first);
        let bucket = |at: usize| Bucket {
            from: 1 << at,
            to: u64::MAX >> (63 - at),
            count: self.counts[at],
            sum: self.sums[at],
        };
        (first..=last).map(bucket).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_counted_between_powers_of_two() {
        let mut histogram = Histogram::default();
        for size in [0, 4, 7, 8, 31, u64::MAX] {
            histogram.add(size);
        }
        let buckets = histogram.buckets();
        let at = |nth: usize| (buckets[nth].from, buckets[nth].to, buckets[nth].count);
        assert_eq!((at(0), at(1), at(2)), ((4, 7, 2), (8, 15, 1), (16, 31, 1)));
        assert_eq!(buckets[0].sum, 11);
        assert_eq!((buckets.len(), buckets[61].to), (62, u64::MAX));
        assert_eq!((histogram.count(), histogram.longest()), (5, u64::MAX));
        assert!(Histogram::default().buckets().is_empty());
    }
}
