//! Files by their contents. Nothing is read of a file before another one has its size and its holes; that other one is
//! compared with it, and only files that differ from the first of their size are summed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use source::DataRun;
use vfs::Ino;
use xxhash_rust::xxh3::Xxh3;

use super::BuildError;

/// Bytes that a file takes in the tables at most, if it has the size of another one.
pub(super) const ENTRY_BYTES: usize = size_of::<(u128, Ino)>();
const _: () = assert!(ENTRY_BYTES <= 32);

/// What files must have alike before their bytes are looked at.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Shape {
    size: u64,
    /// First byte and length of each run of data; nothing if all of it is data.
    runs: Box<[(u64, u64)]>,
}

impl Shape {
    pub(super) fn of(size: u64, runs: &[DataRun]) -> Self {
        let is_whole = matches!(runs, [DataRun { offset: 0, len }] if *len == size);
        let kept = if is_whole { &[] } else { runs };
        Self { size, runs: kept.iter().map(|run| (run.offset, run.len)).collect() }
    }
}

/// Files of one shape, each with other bytes.
struct Alike {
    /// The first of them, whose sum nobody needed.
    first: Ino,
    /// The others by the sums of their bytes.
    others: HashMap<u128, Ino>,
}

/// All files so far whose bytes nobody had before.
#[derive(Default)]
pub(super) struct Files {
    shapes: HashMap<Shape, Alike>,
}

impl Files {
    /// Whether a file is the first of its shape, which it is from now on.
    pub(super) fn is_first(&mut self, shape: &Shape, ino: Ino) -> bool {
        if self.shapes.contains_key(shape) {
            return false;
        }
        let shape = Shape { size: shape.size, runs: shape.runs.clone() };
        self.shapes.insert(shape, Alike { first: ino, others: HashMap::new() });
        true
    }

    /// Finds a file with the same bytes, and what `same` says of it. If there is none, the file is the first of its
    /// kind from now on. `same` compares it with another one; `sum` sums its bytes up.
    pub(super) fn find<T>(
        &mut self,
        shape: &Shape,
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
            // Two with the same sum that are not the same: the second one is nobody's match.
            Entry::Occupied(known) => {
                Ok(same(*known.get(), buffer)?.map(|told| (*known.get(), told)))
            }
        }
    }
}

/// A file whose bytes are read in order, to be looked up as a whole.
pub(in crate::build) struct WholeFile {
    hash: Xxh3,
    size: u64,
}

impl WholeFile {
    pub(in crate::build) fn new(size: u64) -> Self {
        Self { hash: Xxh3::new(), size }
    }

    /// Adds the next bytes of it.
    pub(in crate::build) fn add(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
    }

    /// Size in bytes, holes included.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The sum of its bytes.
    pub(super) fn sum(&self) -> u128 {
        self.hash.digest128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks a file up whose bytes are a number, and whose sum is another one.
    fn look(
        files: &mut Files,
        size: u64,
        ino: u64,
        all: &HashMap<Ino, (u32, u128)>,
    ) -> Option<Ino> {
        let shape = Shape::of(size, &[DataRun { offset: 0, len: size }]);
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
        // Those of another size are not even compared.
        assert_eq!(look(&mut files, 8, 2, &all), None);
    }

    #[test]
    fn holes_are_part_of_a_shape() {
        let shape = |runs: &[(u64, u64)]| {
            let runs: Vec<_> = runs.iter().map(|&(offset, len)| DataRun { offset, len }).collect();
            Shape::of(100, &runs)
        };
        assert!(shape(&[(0, 100)]) == shape(&[(0, 100)]));
        assert!(shape(&[(0, 100)]) != shape(&[(0, 50)]));
        assert!(shape(&[(0, 50)]) != shape(&[(1, 50)]));
        assert!(shape(&[(0, 40), (50, 50)]) != shape(&[(0, 50), (50, 50)]));
    }
}
