//! Hash tables whose keys are numbers of a file system: blocks, inodes, owners, hashes of names.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// Multiplier of Fibonacci hashing: 2^64 divided by the golden ratio.
pub const FIBONACCI: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hasher for numbers, several times faster than the default one. It does not resist chosen keys: only the author of
/// an image can choose these numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberHasher(u64);

/// Creates a [`NumberHasher`] for each key.
pub type BuildNumberHasher = BuildHasherDefault<NumberHasher>;

/// A map whose keys are numbers.
pub type NumberMap<K, V> = HashMap<K, V, BuildNumberHasher>;

/// A set of numbers.
pub type NumberSet<K> = HashSet<K, BuildNumberHasher>;

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(FIBONACCI);
    }

    fn finish(&self) -> u64 {
        // The upper bits of the product are mixed best. The rotation moves them to both ends, because a table takes its
        // index from one end and its tag from the other.
        self.0.rotate_left(26)
    }
}
