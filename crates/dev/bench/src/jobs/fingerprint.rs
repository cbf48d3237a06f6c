//! Comparison of sets of names without storing them.

use std::hash::{DefaultHasher, Hasher};

use crate::error::{Error, Result};

/// A summary of a set of paths, independent of their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fingerprint {
    count: u64,
    sum: u64,
    xor: u64,
}

impl Fingerprint {
    /// Adds a path by its components.
    pub(super) fn add(&mut self, path: &[&[u8]]) {
        let mut hasher = DefaultHasher::new();
        for component in path {
            hasher.write(component);
            hasher.write_u8(b'/');
        }
        let hash = hasher.finish();
        self.count += 1;
        self.sum = self.sum.wrapping_add(hash);
        self.xor ^= hash;
    }

    /// Adds the paths of another set.
    pub(super) fn join(&mut self, other: Self) {
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
        self.xor ^= other.xor;
    }

    /// Returns the number of paths.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// # Errors
    /// `Wrong` if `found` are not these.
    pub(super) fn expect(&self, found: &Self, place: &str) -> Result<()> {
        if self.count != found.count {
            let (expected, found) = (self.count, found.count);
            return Err(Error::Wrong(format!("{place}: {expected} names expected, {found} found")));
        }
        if self != found {
            return Err(Error::Wrong(format!("{place}: as many names as expected, but others")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(paths: &[&[&[u8]]]) -> Fingerprint {
        let mut all = Fingerprint::default();
        paths.iter().for_each(|path| all.add(path));
        all
    }

    #[test]
    fn order_means_nothing_and_everything_else_does() {
        let set = of(&[&[b"a"], &[b"b", b"c"]]);
        assert!(set.expect(&of(&[&[b"b", b"c"], &[b"a"]]), "").is_ok());
        let mut joined = of(&[&[b"b", b"c"]]);
        joined.join(of(&[&[b"a"]]));
        assert!(set.expect(&joined, "").is_ok());
        for other in [
            of(&[&[b"a"]]),
            of(&[&[b"a"], &[b"bc"]]),
            of(&[&[b"a"], &[b"bc", b""]]),
            of(&[&[b"a"], &[b"a"]]),
            of(&[&[b"a"], &[b"b", b"c"], &[b"b", b"c"]]),
        ] {
            assert!(matches!(set.expect(&other, "x"), Err(Error::Wrong(_))), "{other:?}");
        }
    }
}
