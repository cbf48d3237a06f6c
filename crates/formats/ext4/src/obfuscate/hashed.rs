//! Names of indexed directories: random ones with hashes in the ranges of their leaves.
//!
//! Each random name goes to the leaf of its hash, if that leaf still needs a name of this length. So a directory takes
//! little more names than it has entries. Searching a name for a given leaf would take as many names as there are leaves.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use operations::obfuscate::RandomNames;

use crate::format::address::{Block, FileBlock};
use crate::format::dirent::HEADER_SIZE;
use crate::format::hash::NameHash;

/// Maximum number of random names for the entries of one length. A directory of 20 million names needs fewer, and an index
/// with narrower ranges is damaged.
const TRIES_MAX: f64 = (1_u64 << 28) as f64;

/// Number of names that a leaf receives with high probability if it receives one on average for each `1`: twice its entries,
/// and this many more.
const NAMES_MORE: f64 = 40.0;

/// Minimum length of the name in a record, without the length that the record has anyway.
const LEN_MIN: usize = 4;

/// Contents of a leaf of an index: its number, its device block, its bytes.
pub(super) type Leaf = (FileBlock, Block, Vec<u8>);

/// Position of a name in the leaves.
#[derive(Clone, Copy)]
pub(super) struct NamePlace {
    /// Index of the leaf.
    pub(super) leaf: usize,
    /// Offset of its record.
    pub(super) record: usize,
}

/// Bytes of new names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alphabet {
    Letters,
    AllBytes,
}

/// Search of names for a directory.
pub(super) struct HashedNames<'s> {
    pub(super) hash: &'s dyn Fn(&[u8]) -> Option<NameHash>,
    /// Ranges of hashes with the indexes of their leaves, in order.
    pub(super) ranges: Vec<(Range<u64>, usize)>,
    pub(super) random: &'s mut RandomNames,
    /// True if names must be text, because the directory ignores case.
    pub(super) is_text: bool,
    pub(super) taken: HashSet<Vec<u8>>,
}

/// Places of one length that have no name yet, by leaf.
type Open = HashMap<usize, Vec<usize>>;

impl HashedNames<'_> {
    /// Writes names to `places`, which are sorted by the length of the name. Returns false if one gets no name.
    ///
    /// Few names of one to three bytes exist. If none is left for a leaf, the record gets a name of four bytes, for which
    /// it always has space.
    pub(super) fn write(&mut self, places: &[(usize, NamePlace)], leaves: &mut [Leaf]) -> bool {
        places.chunk_by(|(a, _), (b, _)| a == b).all(|places| {
            let len = places[0].0;
            let (mut open, is_short) = (Open::new(), len < LEN_MIN);
            for (_, place) in places {
                open.entry(place.leaf).or_default().push(place.record);
            }
            self.fill(&mut open, len, Alphabet::Letters, leaves)
                || self.fill(&mut open, len, Alphabet::AllBytes, leaves)
                || is_short && self.fill(&mut open, LEN_MIN, Alphabet::Letters, leaves)
                || is_short && self.fill(&mut open, LEN_MIN, Alphabet::AllBytes, leaves)
        })
    }

    /// Writes names of `len` bytes to open places. Returns whether none is left.
    fn fill(
        &mut self,
        open: &mut Open,
        len: usize,
        alphabet: Alphabet,
        leaves: &mut [Leaf],
    ) -> bool {
        if alphabet == Alphabet::AllBytes && self.is_text {
            return open.is_empty();
        }
        let mut name = vec![0; len];
        for _ in 0..self.tries(open, len, alphabet) {
            if open.is_empty() {
                return true;
            }
            match alphabet {
                Alphabet::Letters => self.random.fill(&mut name),
                Alphabet::AllBytes => fill_with_bytes(self.random, &mut name),
            }
            let Some(leaf) = self.leaf_of(&name) else { continue };
            let Some(records) = open.get_mut(&leaf) else { continue };
            if self.taken.contains(&name) {
                continue;
            }
            if let Some(record) = records.pop() {
                let bytes = &mut leaves[leaf].2;
                bytes[record + 6] = len as u8;
                bytes[record + HEADER_SIZE..][..len].copy_from_slice(&name);
                self.taken.insert(name.clone());
            }
            if records.is_empty() {
                open.remove(&leaf);
            }
        }
        open.is_empty()
    }

    /// Returns the leaf whose range contains the hash of a name.
    fn leaf_of(&self, name: &[u8]) -> Option<usize> {
        let hash = u64::from((self.hash)(name)?.major);
        let after = self.ranges.partition_point(|(range, _)| range.start <= hash);
        let (range, leaf) = self.ranges.get(after.checked_sub(1)?)?;
        range.contains(&hash).then_some(*leaf)
    }

    /// Returns the number of random names after which each leaf has all its names, except by rare accidents. Returns 0 if
    /// they are too many.
    fn tries(&self, open: &Open, len: usize, alphabet: Alphabet) -> u64 {
        let tries = self.ranges.iter().filter_map(|(range, leaf)| {
            let names = open.get(leaf)?.len() as f64;
            let share = (range.end - range.start) as f64 / (1_u64 << 32) as f64;
            Some((2.0 * names + NAMES_MORE) / share)
        });
        let tries = tries.fold(0.0, f64::max);
        // Each short name is tried several times at most.
        let letters = if alphabet == Alphabet::Letters { 32.0_f64 } else { 253.0 };
        let existing = letters.powi(len.min(9) as i32);
        if tries > TRIES_MAX { 0 } else { tries.min(8.0 * existing) as u64 }
    }
}

/// Fills a name with any bytes that names may contain.
fn fill_with_bytes(random: &mut RandomNames, name: &mut [u8]) {
    for byte in name {
        *byte = loop {
            let byte = random.number() as u8;
            if !b"\0./".contains(&byte) {
                break byte;
            }
        };
    }
}
