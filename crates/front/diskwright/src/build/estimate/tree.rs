//! Directories of a source by path.

use std::collections::HashMap;

/// Directories with format-specific counters. Index 0 is the root.
pub(super) struct TreeEstimate<D> {
    directories: Vec<D>,
    numbers: HashMap<Box<[u8]>, usize>,
    /// Directory of the last entry, which is usually also that of the next one.
    last: (Vec<u8>, usize),
}

impl<D> TreeEstimate<D> {
    pub(super) fn new(root: D) -> Self {
        let numbers = HashMap::from([(Box::default(), 0)]);
        Self { directories: vec![root], numbers, last: (Vec::new(), 0) }
    }

    pub(super) fn directories(&self) -> &[D] {
        &self.directories
    }

    pub(super) fn get(&mut self, number: usize) -> &mut D {
        &mut self.directories[number]
    }

    /// Returns the index of the directory at `path`, if it exists.
    pub(super) fn find(&self, path: &[u8]) -> Option<usize> {
        self.numbers.get(path).copied()
    }

    /// Returns the index of an entry's parent directory, if known, and the entry's name.
    pub(super) fn parent_of<'p>(&mut self, path: &'p [u8]) -> (Option<usize>, &'p [u8]) {
        let (parent, name) = split(path);
        if self.last.0 == parent {
            return (Some(self.last.1), name);
        }
        let number = self.find(parent);
        if let Some(number) = number {
            self.last.0.clear();
            self.last.0.extend_from_slice(parent);
            self.last.1 = number;
        }
        (number, name)
    }

    /// Adds a directory.
    pub(super) fn insert(&mut self, path: &[u8], directory: D) {
        self.numbers.insert(path.into(), self.directories.len());
        self.directories.push(directory);
    }
}

/// Splits a path into directory and name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_found_by_their_paths() {
        let mut tree = TreeEstimate::new('r');
        assert_eq!(tree.parent_of(b"a"), (Some(0), &b"a"[..]));
        assert_eq!(tree.parent_of(b"a/b"), (None, &b"b"[..]));
        tree.insert(b"a", 'a');
        assert_eq!(tree.parent_of(b"a/b"), (Some(1), &b"b"[..]));
        assert_eq!(tree.parent_of(b"c"), (Some(0), &b"c"[..]));
        assert_eq!((tree.directories(), tree.find(b"a")), (&['r', 'a'][..], Some(1)));
    }
}
