//! A tree similar to the Linux source.
//!
//! Facts, counted in the source of Linux 6.12 as Debian packages it (`linux-source-6.12`): 86,691 files in 5,760
//! directories, 15 each; the lengths of names and the numbers of files per directory are in the tables below; a fifth
//! of the directories have subdirectories, and the median depth of a directory is four. (On most file systems 99 of 100
//! names have 48 bytes at most, according to Andreas Dilger in the thread; here it is 33.)

use fastrand::Rng;

/// Number of files per directory.
const FILES_PER_DIRECTORY: u64 = 15;

/// One in this many directories has subdirectories.
const DIRECTORIES_PER_PARENT: u64 = 5;

/// Points of a distribution: a share in thousandths, and the maximum value of that share.
type Quantiles = &'static [(u16, u16)];

/// Lengths of files' names, in bytes.
const FILE_NAMES: Quantiles = &[
    (0, 2),
    (50, 5),
    (100, 7),
    (250, 8),
    (500, 12),
    (750, 16),
    (900, 21),
    (950, 25),
    (990, 33),
    (999, 44),
    (1000, 60),
];

/// Lengths of directories' names, in bytes.
const DIRECTORY_NAMES: Quantiles = &[
    (0, 1),
    (100, 3),
    (250, 4),
    (500, 6),
    (750, 7),
    (900, 10),
    (950, 12),
    (990, 16),
    (999, 21),
    (1000, 28),
];

/// Number of directories with none, one, two or three, four to seven files, and so on with doubling bounds.
const DIRECTORY_SIZES: [u64; 12] = [367, 485, 1177, 1384, 1088, 681, 345, 141, 69, 16, 6, 1];

/// Maximum length of a name in bytes.
const NAME_LEN_MAX: usize = 64;

/// The directories and their contents. Directory 0 is the top; all others are below it.
pub(super) struct DirectoryShape {
    /// For each directory, its first child, and that of the next one: children are numbered consecutively.
    children: Vec<u64>,
    /// Number of files of each directory.
    files: Vec<u64>,
    seed: u64,
}

impl DirectoryShape {
    /// Returns the number of directories for `files` files, without the top.
    pub(super) const fn directories_for(files: u64) -> u64 {
        files / FILES_PER_DIRECTORY
    }

    /// Creates a tree of `files` files from a seed.
    pub(super) fn new(files: u64, seed: u64) -> Self {
        let directories = Self::directories_for(files);
        let mut random = Rng::with_seed(seed);
        let mut sizes = sizes(files, directories + 1);
        random.shuffle(&mut sizes);
        Self { children: children(directories, &mut random), files: sizes, seed }
    }

    /// Returns the number of directories below the top.
    pub(super) fn directories(&self) -> u64 {
        self.files.len() as u64 - 1
    }

    /// Returns the child of a directory with this name.
    pub(super) fn child(&self, directory: u64, name: &[u8]) -> Option<u64> {
        let digits = name.rsplit(|byte| !byte.is_ascii_digit()).next()?;
        let number = std::str::from_utf8(digits).ok()?.parse::<u64>().ok()?;
        let first = *self.children.get(directory as usize)?;
        let child = first.checked_add(number)?;
        (child < *self.children.get(directory as usize + 1)?).then_some(child)
    }

    /// Calls `each` with the names in a directory, and whether they are directories.
    pub(super) fn names<E>(
        &self,
        directory: u64,
        mut each: impl FnMut(&[u8], bool) -> Result<(), E>,
    ) -> Result<(), E> {
        let at = directory as usize;
        let (Some(&first), Some(&end)) = (self.children.get(at), self.children.get(at + 1)) else {
            return Ok(());
        };
        let subdirectories = end - first;
        let all = subdirectories + self.files[at];
        let width = all.saturating_sub(1).checked_ilog10().unwrap_or(0) as usize + 1;
        let mut random = Rng::with_seed(self.seed ^ directory.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for number in 0..all {
            let is_directory = number < subdirectories;
            let lengths = if is_directory { DIRECTORY_NAMES } else { FILE_NAMES };
            let mut name = [0; NAME_LEN_MAX];
            let len = draw(lengths, &mut random).clamp(width, NAME_LEN_MAX);
            write_name(&mut name[..len], width, number, &mut random);
            each(&name[..len], is_directory)?;
        }
        Ok(())
    }
}

/// Writes letters, and a number in the last `width` bytes, which makes the name unique in its directory.
fn write_name(name: &mut [u8], width: usize, mut number: u64, random: &mut Rng) {
    let (letters, digits) = name.split_at_mut(name.len() - width);
    letters.fill_with(|| random.lowercase() as u8);
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Draws a number from a distribution.
fn draw(quantiles: Quantiles, random: &mut Rng) -> usize {
    let at = random.u16(0..1000);
    let above = quantiles.iter().position(|&(share, _)| share > at).unwrap_or(1);
    let ((from, low), (to, high)) = (quantiles[above - 1], quantiles[above]);
    usize::from(low + (high - low) * (at - from) / (to - from))
}

/// Returns the number of files of each directory, the smallest first.
fn sizes(files: u64, directories: u64) -> Vec<u64> {
    let weights: Vec<f64> = (0..directories).map(|nth| weight(nth, directories)).collect();
    let total: f64 = weights.iter().sum();
    let (mut sum, mut given) = (0.0, 0);
    let mut sizes: Vec<u64> = Vec::with_capacity(weights.len());
    for weight in weights {
        sum += weight;
        let until = if total > 0.0 { (files as f64 * sum / total).round() as u64 } else { 0 };
        sizes.push(until - given);
        given = until;
    }
    // For a single directory, or after rounding.
    if let Some(last) = sizes.last_mut() {
        *last += files - given;
    }
    sizes
}

/// Returns the number of files of the `nth` directory in a Linux source, sorted by size.
fn weight(nth: u64, directories: u64) -> f64 {
    let counted: u64 = DIRECTORY_SIZES.iter().sum();
    let mut place = (nth as f64 + 0.5) / directories as f64 * counted as f64;
    for (bits, count) in DIRECTORY_SIZES.into_iter().enumerate().map(|(b, c)| (b, c as f64)) {
        if place < count && bits > 0 {
            return (bits as f64 - 1.0 + place / count).exp2().floor();
        } else if place < count {
            return 0.0;
        }
        place -= count;
    }
    0.0
}

/// Returns the first child of each directory.
fn children(directories: u64, random: &mut Rng) -> Vec<u64> {
    // The parent of the nth directory must come before it. Sorting preserves that: the nth smallest parent is no larger
    // than the largest of the first n.
    let mut parents: Vec<u64> =
        (0..directories).map(|nth| random.u64(0..=nth / DIRECTORIES_PER_PARENT)).collect();
    parents.sort_unstable();
    let mut children = Vec::with_capacity(parents.len() + 2);
    let mut next = 0;
    for directory in 0..=directories {
        children.push(next + 1);
        while parents.get(next as usize) == Some(&directory) {
            next += 1;
        }
    }
    children.push(next + 1);
    children
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    use super::*;

    fn names(shape: &DirectoryShape, directory: u64) -> Vec<(Vec<u8>, bool)> {
        let mut names = Vec::new();
        let Ok(()) = shape.names(directory, |name, is_directory| {
            names.push((name.to_vec(), is_directory));
            Ok::<_, Infallible>(())
        });
        names
    }

    #[test]
    fn every_directory_is_below_the_top_and_all_files_are_there() {
        for files in [0, 1, 14, 15, 100, 3_000, 90_000] {
            let shape = DirectoryShape::new(files, 7);
            let mut pending = vec![0];
            let (mut visited, mut found) = (BTreeSet::new(), 0);
            while let Some(directory) = pending.pop() {
                assert!(visited.insert(directory));
                let names = names(&shape, directory);
                let distinct: BTreeSet<_> = names.iter().map(|(name, _)| name).collect();
                assert_eq!(distinct.len(), names.len());
                for (name, is_directory) in &names {
                    match (shape.child(directory, name), is_directory) {
                        (Some(child), true) => pending.push(child),
                        (None, false) => found += 1,
                        other => panic!("{}: {other:?}", name.escape_ascii()),
                    }
                }
            }
            assert_eq!((found, visited.len() as u64), (files, files / 15 + 1));
            assert_eq!(shape.directories(), files / 15);
        }
    }

    #[test]
    fn it_is_like_the_source_of_linux() {
        let shape = DirectoryShape::new(90_000, 1);
        let (mut lengths, mut sizes, mut parents, mut depths) = (vec![], vec![], 0, vec![]);
        let mut pending = vec![(0, 0)];
        while let Some((directory, depth)) = pending.pop() {
            depths.push(depth);
            let names = names(&shape, directory);
            let subdirectories = names.iter().filter(|(_, is_directory)| *is_directory);
            pending.extend(
                subdirectories
                    .clone()
                    .map(|(n, _)| (shape.child(directory, n).unwrap(), depth + 1)),
            );
            parents += usize::from(subdirectories.count() > 0);
            let files = names.iter().filter(|(_, is_directory)| !is_directory);
            sizes.push(files.clone().count());
            lengths.extend(files.map(|(name, _)| name.len()));
        }
        let quantile = |which: &mut Vec<usize>, share: f64| {
            which.sort_unstable();
            which[(which.len() as f64 * share) as usize]
        };
        let mut lengths_at = |share| quantile(&mut lengths, share);
        assert!((11..=13).contains(&lengths_at(0.5)) && (31..=35).contains(&lengths_at(0.99)));
        let mut sizes_at = |share| quantile(&mut sizes, share);
        assert!((5..=7).contains(&sizes_at(0.5)), "{}", sizes_at(0.5));
        assert!((45..=65).contains(&sizes_at(0.95)), "{}", sizes_at(0.95));
        assert!((1_000..=2_000).contains(&sizes_at(0.99999)), "{}", sizes_at(0.99999));
        assert!((3..=5).contains(&quantile(&mut depths, 0.5)));
        assert!((800..=1_800).contains(&parents), "{parents}");
    }

    #[test]
    fn a_seed_gives_one_tree() {
        let all = |seed| {
            let shape = DirectoryShape::new(500, seed);
            (0..=shape.directories()).map(|d| names(&shape, d)).collect::<Vec<_>>()
        };
        assert!(all(1) == all(1) && all(1) != all(2));
    }
}
