//! Other names with the same length and hash.
//!
//! The hash rotates by 7 bits for each byte, and adds it by exclusive or. The last five bytes decide all 32 bits, so the
//! bytes before them are free. Bit 7 of a byte and bit 0 of the one before it change the same bit of the hash, which
//! gives other names of two to four bytes.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hasher};

use operations::obfuscate::RandomNames;
use vfs::Ino;

use crate::format::geometry::Geometry;
use crate::format::hash::{folded_hash, name_hash};

/// Number of names that are tried, and of those before names with unprintable bytes are accepted.
const TRIES: usize = 3000;
const PRINTABLE_TRIES: usize = 2000;
/// Number of bytes at the end of a name that decide its hash.
const LAST: usize = 5;

/// Chooses names. The same name in the same directory gets the same new name each time.
pub(super) struct AlikeNames {
    key: u64,
    folds_case: bool,
    random: RandomNames,
    /// New names that are not the first choice, because another name of the directory has that.
    second: HashMap<(u64, Vec<u8>), Vec<u8>>,
}

impl AlikeNames {
    pub(super) fn new(key: u64, geometry: &Geometry) -> Self {
        Self::of_key(key, geometry.features.ascii_ci())
    }

    fn of_key(key: u64, folds_case: bool) -> Self {
        Self { key, folds_case, random: RandomNames::new(key), second: HashMap::new() }
    }

    /// Returns a new name for an entry of a directory, or of an attribute if `dir` is `None`. `taken` has the new names
    /// so far.
    pub(super) fn of(
        &mut self,
        dir: Option<Ino>,
        name: &[u8],
        taken: &mut HashSet<Vec<u8>>,
    ) -> Vec<u8> {
        let number = dir.map_or(0, |dir| dir.0);
        if let Some(known) = self.second.get(&(number, name.to_vec())) {
            taken.insert(known.clone());
            return known.clone();
        }
        let mut is_first = true;
        let new = self.search(number, name, |found| {
            let is_free = !taken.contains(found);
            is_first &= is_free;
            is_free
        });
        if !is_first {
            self.second.insert((number, name.to_vec()), new.clone());
        }
        taken.insert(new.clone());
        new
    }

    /// Returns a source of random bytes for targets of links.
    pub(super) fn random(&mut self) -> &mut RandomNames {
        &mut self.random
    }

    /// Returns the new name that [`Self::of`] gave to an entry of a directory.
    pub(super) fn known(&self, dir: u64, name: &[u8]) -> Vec<u8> {
        let second = self.second.get(&(dir, name.to_vec()));
        second.cloned().unwrap_or_else(|| self.search(dir, name, |_| true))
    }

    /// Returns the first name that `is_free` accepts; the old one if there is none.
    fn search(&self, dir: u64, name: &[u8], mut is_free: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.key);
        hasher.write_u64(dir);
        hasher.write(name);
        let mut random = RandomNames::new(hasher.finish());
        let hash = self.hash(name);
        for nth in 0..TRIES {
            let found = candidate(&mut random, name, hash);
            let is_valid = found != name
                && !found.contains(&0)
                && !found.contains(&b'/')
                && (nth >= PRINTABLE_TRIES || found.iter().all(u8::is_ascii_graphic))
                && self.hash(&found) == hash;
            if is_valid && is_free(&found) {
                return found;
            }
        }
        name.to_vec()
    }

    fn hash(&self, name: &[u8]) -> u32 {
        if self.folds_case { folded_hash(name) } else { name_hash(name) }
    }
}

/// Returns a random name with the length and, without folding of case, the hash of `name`.
fn candidate(random: &mut RandomNames, name: &[u8], hash: u32) -> Vec<u8> {
    let mut new = name.to_vec();
    if let Some(free) = name.len().checked_sub(LAST) {
        random.fill(&mut new[..free]);
        let rest = hash ^ name_hash(&new[..free]).rotate_left(7 * LAST as u32);
        // The upper half of the first byte is free. It is rotated to the lowest bits.
        let first = (random.number() % 8) as u32;
        new[free] = (first << 4 | rest >> 28) as u8;
        new[free + 1] = (rest >> 21 & 0x7f) as u8;
        new[free + 2] = (rest >> 14 & 0x7f) as u8;
        new[free + 3] = (rest >> 7 & 0x7f) as u8;
        new[free + 4] = (rest & 0x7f ^ first) as u8;
    }
    let flips = if name.len() < LAST {
        random.number()
    } else {
        random.number() & random.number() & random.number()
    };
    let from = name.len().saturating_sub(LAST);
    for at in from + 1..name.len() {
        if flips >> (at - from) & 1 == 1 {
            new[at] ^= 0x80;
            new[at - 1] ^= 1;
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_hash_and_the_length_of_others() {
        let mut names = AlikeNames::of_key(5, false);
        let mut taken = HashSet::new();
        for name in
            ["ab", "abc", "abcd", "abcde", "readme.txt", "a-much-longer-name-of-a-file.tar.gz"]
        {
            let new = names.of(Some(Ino(7)), name.as_bytes(), &mut taken);
            assert_ne!(new, name.as_bytes());
            assert_eq!((new.len(), name_hash(&new)), (name.len(), name_hash(name.as_bytes())));
            assert_eq!(names.known(7, name.as_bytes()), new);
            assert!(!new.contains(&b'/') && !new.contains(&0));
            if name.len() > 8 {
                assert!(new.iter().all(u8::is_ascii_graphic), "{new:?}");
            }
        }
        assert_eq!(names.of(None, b"a", &mut taken), b"a");
    }

    #[test]
    fn a_taken_name_is_replaced_for_parents_too() {
        let mut names = AlikeNames::of_key(5, false);
        let first = names.known(7, b"readme.txt");
        let mut taken = HashSet::from([first.clone()]);
        let second = names.of(Some(Ino(7)), b"readme.txt", &mut taken);
        assert_ne!(second, first);
        assert_eq!(names.known(7, b"readme.txt"), second);
        assert_eq!(names.of(Some(Ino(7)), b"readme.txt", &mut HashSet::new()), second);
    }
}
