//! Names in the style of fs_mark.

/// Length of a name in bytes.
pub(super) const NAME_BYTES: usize = 40;

/// A name: eight hexadecimal digits of the time in seconds, eight tildes, 24 random letters and digits, as in fs_mark
/// 3.3 by default.
pub(super) type FsMarkName = [u8; NAME_BYTES];

/// Start time of every run, in seconds of Unix time.
const START: u64 = 1_700_000_000;

/// Time between names in microseconds: the time per file of each thread in the run of 2025 (32 million files by 40
/// threads in 57.6 s).
const MICROS_PER_NAME: u64 = 72;

/// Returns the approximate number of names generated in a number of seconds; at least 1.
pub(super) fn count_in(seconds: u64) -> u64 {
    (seconds * 1_000_000 / MICROS_PER_NAME).max(1)
}

/// Generates names with a virtual clock: the same seed gives the same names on every machine.
#[derive(Debug)]
pub(super) struct NameGenerator {
    random: fastrand::Rng,
    micros: u64,
}

impl NameGenerator {
    /// Creates the generator of one of several directories.
    pub(super) fn new(seed: u64, directory: u64) -> Self {
        // Neighbouring directories must not have similar seeds.
        let mixed = seed ^ (directory + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { random: fastrand::Rng::with_seed(mixed), micros: START * 1_000_000 }
    }

    /// Returns the time of the next name, in seconds of Unix time.
    pub(super) fn second(&self) -> u64 {
        self.micros / 1_000_000
    }

    /// Returns the number of names before that second.
    pub(super) fn count_before(&self, second: u64) -> u64 {
        (second * 1_000_000).saturating_sub(self.micros).div_ceil(MICROS_PER_NAME)
    }

    /// Replaces the names in `batch` by the next `count` names, reusing its memory.
    pub(super) fn fill(&mut self, batch: &mut Vec<FsMarkName>, count: usize) {
        batch.clear();
        batch.extend((0..count).map(|_| self.next()));
    }

    fn next(&mut self) -> FsMarkName {
        const HEXADECIMAL: &[u8; 16] = b"0123456789abcdef";
        const RANDOM: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let second = self.second();
        let mut name = [b'~'; NAME_BYTES];
        for (at, digit) in name[..8].iter_mut().enumerate() {
            *digit = HEXADECIMAL[(second >> (28 - at * 4)) as usize & 15];
        }
        name[16..].fill_with(|| RANDOM[self.random.usize(..RANDOM.len())]);
        self.micros += MICROS_PER_NAME;
        name
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_look_like_those_of_fs_mark() {
        let mut batch = Vec::new();
        NameGenerator::new(1, 0).fill(&mut batch, 20_000);
        assert_eq!(&batch[0][..16], b"6553f100~~~~~~~~");
        // 72 microseconds each: the 13,889th name is the first of the next second.
        assert_eq!(&batch[13_888][..16], b"6553f100~~~~~~~~");
        assert_eq!(&batch[13_889][..16], b"6553f101~~~~~~~~");
        let is_random = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
        assert!(batch.iter().all(|name| name[16..].iter().all(is_random)));
        assert_eq!(batch.iter().collect::<BTreeSet<_>>().len(), batch.len());
    }

    #[test]
    fn the_seed_decides_and_the_size_of_batches_does_not() {
        let (mut all, mut part, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        NameGenerator::new(7, 2).fill(&mut all, 10);
        let mut names = NameGenerator::new(7, 2);
        for count in [1, 4, 5] {
            names.fill(&mut part, count);
            parts.extend_from_slice(&part);
        }
        assert_eq!(all, parts);
        for other in [NameGenerator::new(8, 2), NameGenerator::new(7, 3)].iter_mut() {
            other.fill(&mut part, 10);
            assert_ne!(all, part);
        }
    }

    #[test]
    fn the_clock_knows_how_many_names_are_left_before_a_second() {
        let mut names = NameGenerator::new(1, 0);
        let count = names.count_before(START + 1);
        assert_eq!(count, 13_889);
        names.fill(&mut Vec::new(), count as usize - 1);
        assert_eq!((names.second(), names.count_before(START + 1)), (START, 1));
        names.next();
        assert_eq!((names.second(), names.count_before(START + 1)), (START + 1, 0));
    }
}
