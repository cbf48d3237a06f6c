//! Sets of blocks or inodes: a bit each.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const WORD_BITS: u64 = 64;
/// Base-2 logarithm of the numbers in a chunk of a set that is not extremely large: 4 KiB of memory.
const CHUNK_LOG_MIN: u32 = 15;
/// Base-2 logarithm of the maximum number of chunks, which bounds the memory of an empty set.
const CHUNKS_LOG_MAX: u32 = 20;

/// A set of numbers below a limit, which several threads may change at once. Accesses are not ordered: readers
/// synchronise with writers by other means.
///
/// Memory is allocated in chunks when their first member is added. An empty set costs almost nothing, because the
/// limit often comes from an image and may be a false claim.
#[derive(Debug)]
pub struct BitSet {
    chunks: Box<[OnceLock<Box<[AtomicU64]>>]>,
    /// Base-2 logarithm of the words in a chunk.
    chunk_words_log: u32,
    limit: u64,
}

/// The bits of one word that belong to `range`; the range reaches into the word.
fn mask(word: u64, range: &Range<u64>) -> u64 {
    let low = range.start.saturating_sub(word * WORD_BITS);
    let high = (range.end - word * WORD_BITS).min(WORD_BITS);
    (u64::MAX << low) & (u64::MAX >> (WORD_BITS - high))
}

impl BitSet {
    /// Returns the empty set of numbers below `limit`. It takes at most 24 MiB; each chunk with a member takes 4 KiB,
    /// or more where the limit is above 2^35.
    pub fn new(limit: u64) -> Self {
        let limit_log = u64::BITS - limit.leading_zeros();
        let chunk_log = limit_log.saturating_sub(CHUNKS_LOG_MAX).max(CHUNK_LOG_MIN);
        // At most 2^20, so that it fits into usize.
        let chunks = limit.div_ceil(1 << chunk_log) as usize;
        Self {
            chunks: std::iter::repeat_with(OnceLock::new).take(chunks).collect(),
            chunk_words_log: chunk_log - WORD_BITS.ilog2(),
            limit,
        }
    }

    /// The number below which all members are.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Splits the index of a word into the chunk and the word within it.
    const fn place(&self, word: u64) -> (usize, usize) {
        let within = (1 << self.chunk_words_log) - 1;
        ((word >> self.chunk_words_log) as usize, (word & within) as usize)
    }

    /// Returns a word if its chunk has ever had a member.
    fn existing(&self, word: u64) -> Option<&AtomicU64> {
        let (chunk, within) = self.place(word);
        self.chunks.get(chunk)?.get()?.get(within)
    }

    /// Returns a word below the limit; allocates its chunk if necessary.
    fn word_mut(&self, word: u64) -> &AtomicU64 {
        let (chunk, within) = self.place(word);
        let words = 1 << self.chunk_words_log;
        let make = || std::iter::repeat_with(AtomicU64::default).take(words).collect();
        &self.chunks[chunk].get_or_init(make)[within]
    }

    /// Whether a number is in the set; false for one beyond the limit.
    pub fn contains(&self, number: u64) -> bool {
        number < self.limit && self.word(number / WORD_BITS) >> (number % WORD_BITS) & 1 == 1
    }

    /// Adds a number. Returns whether it was new; false for one beyond the limit, which is not added.
    pub fn insert(&self, number: u64) -> bool {
        number < self.limit && {
            let bit = 1 << (number % WORD_BITS);
            self.word_mut(number / WORD_BITS).fetch_or(bit, Ordering::Relaxed) & bit == 0
        }
    }

    /// Takes a number out. Returns whether it was in.
    pub fn remove(&self, number: u64) -> bool {
        let word = (number < self.limit).then(|| self.existing(number / WORD_BITS)).flatten();
        word.is_some_and(|word| {
            let bit = 1 << (number % WORD_BITS);
            word.fetch_and(!bit, Ordering::Relaxed) & bit != 0
        })
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
            let mut before = self.word_mut(word).fetch_or(bits, Ordering::Relaxed) & bits;
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
        let (first, end) = (range.start / WORD_BITS, range.end.div_ceil(WORD_BITS));
        let mut count = 0;
        let mut word = first;
        while word < end {
            let next = ((word >> self.chunk_words_log) + 1) << self.chunk_words_log;
            let (chunk, _) = self.place(word);
            if self.chunks.get(chunk).is_some_and(|chunk| chunk.get().is_some()) {
                let of_word = |word| u64::from((self.word(word) & mask(word, &range)).count_ones());
                count += (word..next.min(end)).map(of_word).sum::<u64>();
            }
            word = next;
        }
        count
    }

    /// The word with the numbers `64 * index..64 * (index + 1)`, the lowest in the lowest bit; 0 beyond the limit.
    pub fn word(&self, index: u64) -> u64 {
        self.existing(index).map_or(0, |word| word.load(Ordering::Relaxed))
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
    fn a_set_takes_memory_for_its_members_only() {
        for limit in [u64::MAX, 1 << 50, 1 << 37] {
            let set = BitSet::new(limit);
            assert!(set.insert(limit - 1) && set.contains(limit - 1) && !set.insert(limit));
            set.insert_range(limit - 100..limit, |number| assert_eq!(number, limit - 1));
            set.insert_range(1 << 30..(1 << 30) + 70, |_| panic!("new"));
            assert_eq!(set.count(0..limit), 170);
            assert_eq!(set.word((1 << 30) / 64), u64::MAX);
            assert!(set.chunks.iter().filter(|chunk| chunk.get().is_some()).count() <= 2);
        }
        assert_eq!(BitSet::new(0).count(0..9), 0);
    }

    #[test]
    fn single_numbers_come_and_go() {
        let set = BitSet::new(65);
        assert!(set.insert(64) && !set.insert(64) && !set.insert(65));
        assert!(set.remove(64) && !set.remove(64) && !set.remove(65));
        assert_eq!(set.word(7), 0);
    }
}
