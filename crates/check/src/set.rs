//! Sets of blocks or inodes: a bit each.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

const WORD_BITS: u64 = 64;

/// A set of numbers below a limit, which several threads may change at once. Orders nothing: whoever reads what
/// others wrote waits for them first.
#[derive(Debug)]
pub struct BitSet {
    words: Box<[AtomicU64]>,
    limit: u64,
}

/// The bits of one word that belong to `range`; the range reaches into the word.
fn mask(word: u64, range: &Range<u64>) -> u64 {
    let low = range.start.saturating_sub(word * WORD_BITS);
    let high = (range.end - word * WORD_BITS).min(WORD_BITS);
    (u64::MAX << low) & (u64::MAX >> (WORD_BITS - high))
}

impl BitSet {
    /// The empty set of numbers below `limit`. Takes `limit / 8` bytes of memory once they are used.
    ///
    /// # Panics
    /// If there is no address for so many bits.
    pub fn new(limit: u64) -> Self {
        let words = usize::try_from(limit.div_ceil(WORD_BITS)).expect("a set that has addresses");
        // Zeroed memory comes from the system as it is needed.
        let words = std::iter::repeat_with(AtomicU64::default).take(words).collect();
        Self { words, limit }
    }

    /// The number below which all members are.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether a number is in the set; false for one beyond the limit.
    pub fn contains(&self, number: u64) -> bool {
        number < self.limit && self.word(number / WORD_BITS) >> (number % WORD_BITS) & 1 == 1
    }

    /// Adds a number. Returns whether it was new; false for one beyond the limit, which is not added.
    pub fn insert(&self, number: u64) -> bool {
        number < self.limit && {
            let bit = 1 << (number % WORD_BITS);
            let word = &self.words[(number / WORD_BITS) as usize];
            word.fetch_or(bit, Ordering::Relaxed) & bit == 0
        }
    }

    /// Takes a number out. Returns whether it was in.
    pub fn remove(&self, number: u64) -> bool {
        number < self.limit && {
            let bit = 1 << (number % WORD_BITS);
            let word = &self.words[(number / WORD_BITS) as usize];
            word.fetch_and(!bit, Ordering::Relaxed) & bit != 0
        }
    }

    /// Adds a range, as far as it is below the limit, and calls `again` with each number in it that was in the
    /// set before.
    pub fn insert_range(&self, range: Range<u64>, mut again: impl FnMut(u64)) {
        let range = range.start..range.end.min(self.limit);
        if range.is_empty() {
            return;
        }
        for word in range.start / WORD_BITS..range.end.div_ceil(WORD_BITS) {
            let bits = mask(word, &range);
            let mut before = self.words[word as usize].fetch_or(bits, Ordering::Relaxed) & bits;
            while before != 0 {
                again(word * WORD_BITS + u64::from(before.trailing_zeros()));
                before &= before - 1;
            }
        }
    }

    /// How many numbers of a range are in the set.
    pub fn count(&self, range: Range<u64>) -> u64 {
        let range = range.start..range.end.min(self.limit);
        if range.is_empty() {
            return 0;
        }
        let words = range.start / WORD_BITS..range.end.div_ceil(WORD_BITS);
        words.map(|word| u64::from((self.word(word) & mask(word, &range)).count_ones())).sum()
    }

    /// The word with the numbers `64 * index..64 * (index + 1)`, the lowest in the lowest bit; 0 beyond the limit.
    pub fn word(&self, index: u64) -> u64 {
        let word = usize::try_from(index).ok().and_then(|index| self.words.get(index));
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_added_once() {
        let set = BitSet::new(1000);
        set.insert_range(60..200, |_| panic!("new"));
        assert_eq!(set.count(0..1000), 140);
        assert_eq!(set.count(64..128), 64);
        let mut again = Vec::new();
        set.insert_range(190..2000, |number| again.push(number));
        assert_eq!(again, (190..200).collect::<Vec<_>>());
        assert_eq!(set.count(0..5000), 940);
        assert!(set.contains(999) && !set.contains(1000) && !set.contains(59));
    }

    #[test]
    fn single_numbers_come_and_go() {
        let set = BitSet::new(65);
        assert!(set.insert(64) && !set.insert(64) && !set.insert(65));
        assert!(set.remove(64) && !set.remove(64) && !set.remove(65));
        assert_eq!(set.word(7), 0);
    }
}
