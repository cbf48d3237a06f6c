//! Ranges of hashes with about the same number of names each. Hashes of names that differ in few characters may agree
//! in all of their upper bits, so the ranges are derived from a sample of names.

/// Maximum number of hashes in a sample.
const SAMPLE_MAX: usize = 4096;

/// A sample of the hashes of a directory's names: every `every`-th one.
pub(super) struct Sample {
    keys: Vec<u64>,
    every: usize,
    /// Names until the next sample.
    left: usize,
}

impl Default for Sample {
    fn default() -> Self {
        Self { keys: Vec::new(), every: 1, left: 1 }
    }
}

impl Sample {
    /// Offers a name to the sample.
    pub(super) fn note(&mut self, key: u64) {
        self.left -= 1;
        if self.left == 0 {
            self.keep(key);
        }
    }

    #[cold]
    fn keep(&mut self, key: u64) {
        if self.keys.len() >= SAMPLE_MAX {
            let mut is_odd = false;
            self.keys.retain(|_| {
                is_odd = !is_odd;
                is_odd
            });
            self.every *= 2;
        }
        self.keys.push(key);
        self.left = self.every;
    }
}

/// Ascending ranges that cover all hashes.
#[derive(Default)]
pub(super) struct Ranges {
    /// First hash of each range except the first.
    starts: Vec<u64>,
}

impl Ranges {
    /// Returns up to `count` ranges with about the same number of sampled names each; fewer if the sample is too small.
    pub(super) fn of(sample: &Sample, count: usize) -> Self {
        let mut keys = sample.keys.clone();
        keys.sort_unstable();
        let count = count.min(keys.len()).max(1);
        let mut starts: Vec<u64> = (1..count).map(|at| keys[at * keys.len() / count]).collect();
        starts.dedup();
        Self { starts }
    }

    /// Returns the number of ranges.
    pub(super) fn count(&self) -> usize {
        self.starts.len() + 1
    }

    /// Returns the range of a hash.
    pub(super) fn find(&self, key: u64) -> usize {
        self.starts.partition_point(|&start| start <= key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also if the hashes agree in their upper bits.
    #[test]
    fn ranges_have_about_as_many_names_each() {
        for shift in [0, 20, 40] {
            let key = |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 41) << shift;
            let mut sample = Sample::default();
            (0..100_000).for_each(|number| sample.note(key(number)));
            assert!(sample.keys.len() <= SAMPLE_MAX && sample.keys.len() > SAMPLE_MAX / 3);
            let ranges = Ranges::of(&sample, 64);
            let mut names = vec![0; ranges.count()];
            (0..200_000).for_each(|number| names[ranges.find(key(number))] += 1);
            assert_eq!(names.len(), 64);
            assert!(names.iter().all(|names| (1_000..8_000).contains(names)), "{names:?}");
        }
    }

    #[test]
    fn few_names_make_few_ranges() {
        let mut sample = Sample::default();
        assert_eq!(Ranges::of(&sample, 8).count(), 1);
        [5, 5, 9].into_iter().for_each(|key| sample.note(key));
        let ranges = Ranges::of(&sample, 8);
        assert_eq!([0, 4, 5, 8, 9, u64::MAX].map(|key| ranges.find(key)), [0, 0, 1, 1, 2, 2]);
    }
}
