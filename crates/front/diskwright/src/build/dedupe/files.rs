//! Index of files by contents. A file is not read before a second file has its size and holes. The first one is then
//! compared with it. Only files that differ from the first of their shape are hashed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use import::DataRun;
use vfs::Ino;
use xxhash_rust::xxh3::Xxh3;

use super::BuildError;

/// Maximum table size per file, in bytes, for files whose size is not unique.
pub(super) const ENTRY_BYTES: usize = size_of::<(u128, Ino)>();
const _: () = assert!(ENTRY_BYTES <= 32);

/// Properties that must be equal before bytes are compared.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct FileProperties {
    size: u64,
    /// Offset and length of each data run; empty if the file has no holes.
    runs: Box<[(u64, u64)]>,
}

impl FileProperties {
    pub(super) fn of(size: u64, runs: &[DataRun]) -> Self {
        let is_whole = matches!(runs, [DataRun { offset: 0, len }] if *len == size);
        let kept = if is_whole { &[] } else { runs };
        Self { size, runs: kept.iter().map(|run| (run.offset, run.len)).collect() }
    }
}

/// Distinct files of one shape.
struct Alike {
    /// First file, which has not been hashed.
    first: Ino,
    /// Other files by hash.
    others: HashMap<u128, Ino>,
}

/// Distinct files so far.
#[derive(Default)]
pub(super) struct Files {
    shapes: HashMap<FileProperties, Alike>,
}

impl Files {
    /// Returns whether a file is the first of its shape, and records it.
    pub(super) fn is_first(&mut self, shape: &FileProperties, ino: Ino) -> bool {
        if self.shapes.contains_key(shape) {
            return false;
        }
        let shape = FileProperties { size: shape.size, runs: shape.runs.clone() };
        self.shapes.insert(shape, Alike { first: ino, others: HashMap::new() });
        true
    }

    /// Finds a file with the same bytes, together with the result of `same`. If there is none, records the file. `same`
    /// compares it with another file; `sum` hashes it.
    pub(super) fn find<T>(
        &mut self,
        shape: &FileProperties,
        ino: Ino,
        mut same: impl FnMut(Ino, &mut [u8]) -> Result<Option<T>, BuildError>,
        sum: impl FnOnce(&mut [u8]) -> Result<u128, BuildError>,
        buffer: &mut [u8],
    ) -> Result<Option<(Ino, T)>, BuildError> {
        let Some(alike) = self.shapes.get_mut(shape) else { return Ok(None) };
        if let Some(told) = same(alike.first, buffer)? {
            return Ok(Some((alike.first, told)));
        }
        match alike.others.entry(sum(buffer)?) {
            Entry::Vacant(new) => {
                new.insert(ino);
                Ok(None)
            }
            // Hash collision with different bytes: the second file has no match.
            Entry::Occupied(known) => {
                Ok(same(*known.get(), buffer)?.map(|told| (*known.get(), told)))
            }
        }
    }
}

/// File that is read in order and then looked up as a whole.
pub(in crate::build) struct WholeFile {
    hash: Xxh3,
    size: u64,
}

impl WholeFile {
    pub(in crate::build) fn new(size: u64) -> Self {
        Self { hash: Xxh3::new(), size }
    }

    /// Adds the next bytes.
    pub(in crate::build) fn add(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
    }

    /// Returns the size in bytes, holes included.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the hash of the bytes.
    pub(super) fn sum(&self) -> u128 {
        self.hash.digest128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks up a file with the given bytes and hash.
    fn look(
        files: &mut Files,
        size: u64,
        ino: u64,
        all: &HashMap<Ino, (u32, u128)>,
    ) -> Option<Ino> {
        let shape = FileProperties::of(size, &[DataRun { offset: 0, len: size }]);
        let ino = Ino(ino);
        if files.is_first(&shape, ino) {
            return None;
        }
        let (bytes, sum) = all[&ino];
        let same = |other, _: &mut [u8]| Ok((all[&other].0 == bytes).then_some(()));
        files.find(&shape, ino, same, |_| Ok(sum), &mut []).unwrap().map(|found| found.0)
    }

    #[test]
    fn files_are_the_same_by_their_bytes_and_not_by_their_sums() {
        let all =
            [(1, (10, 5)), (2, (10, 5)), (3, (11, 6)), (4, (12, 6)), (5, (11, 6)), (6, (12, 6))];
        let all: HashMap<_, _> = all.into_iter().map(|(ino, file)| (Ino(ino), file)).collect();
        let mut files = Files::default();
        let found = [1, 2, 3, 4, 5, 6].map(|ino| look(&mut files, 9, ino, &all));
        assert_eq!(found, [None, Some(Ino(1)), None, None, Some(Ino(3)), None]);
        // Files of other sizes are not compared.
        assert_eq!(look(&mut files, 8, 2, &all), None);
    }

    #[test]
    fn holes_are_part_of_a_shape() {
        let shape = |runs: &[(u64, u64)]| {
            let runs: Vec<_> = runs.iter().map(|&(offset, len)| DataRun { offset, len }).collect();
            FileProperties::of(100, &runs)
        };
        assert!(shape(&[(0, 100)]) == shape(&[(0, 100)]));
        assert!(shape(&[(0, 100)]) != shape(&[(0, 50)]));
        assert!(shape(&[(0, 50)]) != shape(&[(1, 50)]));
        assert!(shape(&[(0, 40), (50, 50)]) != shape(&[(0, 50), (50, 50)]));
    }
}
