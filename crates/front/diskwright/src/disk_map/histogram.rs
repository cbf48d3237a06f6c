//! Histograms by powers of two.

use serde::Serialize;

/// Items with sizes from one power of two up to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Minimum size.
    pub from: u64,
    /// Maximum size.
    pub to: u64,
    /// Number of items.
    pub count: u64,
    /// Sum of their sizes.
    pub sum: u64,
}

/// Counts of items by size.
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
    /// Adds an item. Its size must be at least 1.
    pub(crate) fn add(&mut self, size: u64) {
        let Some(bucket) = size.checked_ilog2() else { return };
        self.counts[bucket as usize] += 1;
        let sum = &mut self.sums[bucket as usize];
        *sum = sum.saturating_add(size);
        self.longest = self.longest.max(size);
    }

    /// Returns the largest size.
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// Returns the number of items.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all sizes.
    pub fn sum(&self) -> u64 {
        self.sums.iter().fold(0, |sum, more| sum.saturating_add(*more))
    }

    /// Returns the buckets from the smallest to the largest size, including empty ones in between.
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
