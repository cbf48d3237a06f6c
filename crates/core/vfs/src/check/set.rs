//! Sets of blocks or inodes, with one bit per member.

use std::iter::repeat_with;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const WORD_BITS: u64 = 64;
/// Base-2 logarithm of the words in a leaf: 4 KiB of memory.
const LEAF_LOG: u32 = 9;
/// Base-2 logarithm of the children of a node.
const CHILDREN_LOG: u32 = 12;

/// A set of numbers below a limit, which several threads may change at once. Accesses are unordered (relaxed): readers
/// must synchronise with writers by other means.
///
/// It is a tree whose nodes are allocated when their first member is added. An empty set costs almost nothing, because
/// the limit often comes from an image and may be wrong.
#[derive(Debug)]
pub struct BitSet {
    root: SetNode,
    /// Number of levels of children above the leaves.
    height: u32,
    limit: u64,
}

#[derive(Debug)]
enum SetNode {
    Leaf(Box<[AtomicU64]>),
    /// At most `1 << CHILDREN_LOG`; only the root has fewer.
    Children(Box<[OnceLock<SetNode>]>),
}

impl SetNode {
    /// Returns an empty node with all words or children that a node at this height has.
    fn full(height: u32) -> Self {
        Self::new(height, 1 << if height == 0 { LEAF_LOG } else { CHILDREN_LOG })
    }

    fn new(height: u32, len: usize) -> Self {
        match height {
            0 => Self::Leaf(repeat_with(AtomicU64::default).take(len).collect()),
            _ => Self::Children(repeat_with(OnceLock::new).take(len).collect()),
        }
    }
}

/// Base-2 logarithm of the words below a child of a node at `height`, which is at least 1.
const fn child_log(height: u32) -> u32 {
    LEAF_LOG + (height - 1) * CHILDREN_LOG
}

/// Returns the index of a word in its leaf.
const fn word_in_leaf(word: u64) -> usize {
    (word & ((1 << LEAF_LOG) - 1)) as usize
}

/// Returns the bits of a word that belong to `range`, which must overlap the word.
fn mask(word: u64, range: &Range<u64>) -> u64 {
    let low = range.start.saturating_sub(word * WORD_BITS);
    let high = (range.end - word * WORD_BITS).min(WORD_BITS);
    (u64::MAX << low) & (u64::MAX >> (WORD_BITS - high))
}

impl BitSet {
    /// Returns the empty set of numbers below `limit`. It takes at most 128 KiB. A leaf with members takes 4 KiB, a node of
    /// children 128 KiB. A set with a limit up to 2^27 has one node of children.
    pub fn new(limit: u64) -> Self {
        let words = limit.div_ceil(WORD_BITS);
        let (mut height, mut len) = (0, words);
        while len > 1 << if height == 0 { LEAF_LOG } else { CHILDREN_LOG } {
            height += 1;
            len = words.div_ceil(1 << child_log(height));
        }
        // At most 2^12, so that it fits into usize.
        Self { root: SetNode::new(height, len as usize), height, limit }
    }

    /// Returns the exclusive upper limit of members.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the leaf of a word below the limit. If the leaf is not allocated, returns the base-2 logarithm of the
    /// number of words in the aligned range around it without members.
    fn leaf(&self, word: u64) -> Result<&[AtomicU64], u32> {
        let (mut node, mut height, mut within) = (&self.root, self.height, word);
        loop {
            let children = match node {
                SetNode::Leaf(words) => return Ok(words),
                SetNode::Children(children) => children,
            };
            let log = child_log(height);
            node = children[(within >> log) as usize].get().ok_or(log)?;
            within &= (1 << log) - 1;
            height -= 1;
        }
    }

    /// Returns a word if its leaf has ever had a member.
    fn existing(&self, word: u64) -> Option<&AtomicU64> {
        if word >= self.limit.div_ceil(WORD_BITS) {
            return None;
        }
        Some(&self.leaf(word).ok()?[word_in_leaf(word)])
    }

    /// Returns a word below the limit; allocates its leaf if necessary.
    fn word_mut(&self, word: u64) -> &AtomicU64 {
        let (mut node, mut height, mut within) = (&self.root, self.height, word);
        loop {
            let children = match node {
                SetNode::Leaf(words) => return &words[within as usize],
                SetNode::Children(children) => children,
            };
            let log = child_log(height);
            height -= 1;
            node = children[(within >> log) as usize].get_or_init(|| SetNode::full(height));
            within &= (1 << log) - 1;
        }
    }

    /// Returns whether a number is in the set; false for a number beyond the limit.
    pub fn contains(&self, number: u64) -> bool {
        number < self.limit && self.word(number / WORD_BITS) >> (number % WORD_BITS) & 1 == 1
    }

    /// Adds a number. Returns whether it is new; a number beyond the limit is not added and returns false.
    pub fn insert(&self, number: u64) -> bool {
        number < self.limit && {
            let bit = 1 << (number % WORD_BITS);
            self.word_mut(number / WORD_BITS).fetch_or(bit, Ordering::Relaxed) & bit == 0
        }
    }

    /// Adds a range, clipped to the limit, and calls `again` with each number of it that was already in the set.
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

    /// Returns how many numbers of a range are in the set.
    pub fn count(&self, range: Range<u64>) -> u64 {
        let range = range.start..range.end.min(self.limit);
        if range.is_empty() {
            return 0;
        }
        let (first, end) = (range.start / WORD_BITS, range.end.div_ceil(WORD_BITS));
        let mut count = 0;
        let mut word = first;
        while word < end {
            let (leaf, log) = match self.leaf(word) {
                Ok(leaf) => (leaf, LEAF_LOG),
                Err(log) => (&[][..], log),
            };
            let next = (((word >> log) + 1) << log).min(end);
            for (bits, word) in leaf.iter().skip(word_in_leaf(word)).zip(word..next) {
                let bits = bits.load(Ordering::Relaxed) & mask(word, &range);
                count += u64::from(bits.count_ones());
            }
            word = next;
        }
        count
    }

    /// Returns the bits of the numbers `64 * index..64 * (index + 1)`, lowest bit first; 0 beyond the limit.
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

    fn leaves(node: &SetNode) -> usize {
        match node {
            SetNode::Leaf(_) => 1,
            SetNode::Children(children) => {
                children.iter().filter_map(OnceLock::get).map(leaves).sum()
            }
        }
    }

    #[test]
    fn members_are_found_at_each_limit() {
        let logs = [0, 6, 14, 15, 16, 26, 27, 28, 39, 40, 51, 63];
        for limit in logs.into_iter().flat_map(|log| [(1_u64 << log) - 1, 1 << log, (1 << log) + 1])
        {
            let set = BitSet::new(limit);
            let members: Vec<u64> = [0, limit / 3, limit / 2, limit.saturating_sub(1)]
                .into_iter()
                .filter(|&number| number < limit)
                .collect();
            for &number in &members {
                set.insert(number);
                assert!(set.contains(number) && !set.insert(number), "{number} of {limit}");
            }
            let different: std::collections::BTreeSet<_> = members.iter().collect();
            assert_eq!(set.count(0..u64::MAX), different.len() as u64, "{limit}");
            for number in different {
                assert_eq!(set.count(*number..number + 1), 1, "{number} of {limit}");
            }
            assert_eq!(set.word(u64::MAX), 0);
        }
    }

    #[test]
    fn a_set_takes_memory_for_its_members_only() {
        for limit in [u64::MAX, 1 << 50, 1 << 37, 1 << 36] {
            let set = BitSet::new(limit);
            assert!(set.insert(limit - 1) && set.contains(limit - 1) && !set.insert(limit));
            set.insert_range(limit - 100..limit, |number| assert_eq!(number, limit - 1));
            set.insert_range(1 << 30..(1 << 30) + 70, |_| panic!("new"));
            assert_eq!(set.count(0..limit), 170);
            assert_eq!(set.word((1 << 30) / 64), u64::MAX);
            assert!(leaves(&set.root) <= 2);
        }
        assert_eq!(BitSet::new(0).count(0..9), 0);
    }

    #[test]
    fn a_number_beyond_the_limit_is_not_added() {
        let set = BitSet::new(65);
        assert!(set.insert(64) && !set.insert(64) && !set.insert(65));
        assert_eq!(set.word(7), 0);
    }
}
