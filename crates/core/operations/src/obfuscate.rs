//! Random names and targets for copies of metadata that are given to others.

/// Bytes of random names.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Source of random bytes. They cannot be repeated without the key.
#[derive(Clone, Debug)]
pub struct RandomNames(u64);

impl RandomNames {
    /// Creates a source from a key.
    #[must_use]
    pub fn new(key: u64) -> Self {
        Self(key)
    }

    /// Returns the next random number (SplitMix64).
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Fills `bytes` with letters and digits.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(12) {
            let mut number = self.number();
            for byte in part {
                *byte = LETTERS[(number % 32) as usize];
                number /= 32;
            }
        }
    }

    /// Returns a name of `len` letters and digits.
    pub fn name(&mut self, len: usize) -> Vec<u8> {
        let mut name = vec![0; len];
        self.fill(&mut name);
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_length_and_differ() {
        let mut names = RandomNames::new(7);
        let (one, other) = (names.name(40), names.name(40));
        assert!(one.len() == 40 && one != other && one.iter().all(u8::is_ascii_alphanumeric));
        assert_eq!(RandomNames::new(7).name(40), one);
        assert_ne!(RandomNames::new(8).name(40), one);
    }
}
