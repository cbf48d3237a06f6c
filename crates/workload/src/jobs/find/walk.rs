//! Walking a tree: depth first, by the types that the entries have.

use vfs::FileType;

use crate::error::{Error, Result};
use crate::target::{EachEntry, Target};

/// Directories inside each other, at most. More are a loop: a path has 4096 bytes.
const DEPTH_MAX: usize = 2048;

/// Entries after which the caller hears how far the walk is.
const PULSE_ENTRIES: u64 = 4096;

/// What has directories in directories.
pub(super) trait Branching {
    /// An open directory.
    type Dir;

    fn entries(&self, dir: &Self::Dir, each: &mut EachEntry<'_>) -> Result<()>;

    fn child(&self, dir: &Self::Dir, name: &[u8]) -> Result<Self::Dir>;

    /// Asked only where the entry has no type.
    fn is_directory(&self, dir: &Self::Dir, name: &[u8]) -> Result<bool>;
}

impl<T: Target> Branching for T {
    type Dir = T::Dir;

    fn entries(&self, dir: &T::Dir, each: &mut EachEntry<'_>) -> Result<()> {
        self.list(dir, each)
    }

    fn child(&self, dir: &T::Dir, name: &[u8]) -> Result<T::Dir> {
        self.open_dir(dir, name)
    }

    fn is_directory(&self, dir: &T::Dir, name: &[u8]) -> Result<bool> {
        Ok(self.stat(dir, name)?.0 == FileType::Directory)
    }
}

/// What a walk saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Entries of all directories.
    pub(super) entries: u64,
    /// Directories among them.
    pub(super) directories: u64,
}

/// A walk's memory, which the next one uses again: nothing is allocated for an entry.
pub(super) struct Walker<D> {
    /// The directories from the top down to the one that is walked.
    open: Vec<Level<D>>,
    /// Names of entries of the open directories that are to be visited or may be: for each, two bytes
    /// of length, one that says whether the type is known, and the name.
    pending: Vec<u8>,
}

struct Level<D> {
    dir: D,
    /// Where its names start in the buffer. They end where those of the next level start.
    start: usize,
    /// Where the next one to be visited is.
    next: usize,
}

const IS_DIRECTORY: u8 = 0;
const IS_UNKNOWN: u8 = 1;
const HEADER_LEN: usize = 3;

impl<D> Walker<D> {
    pub(super) fn new() -> Self {
        Self { open: Vec::new(), pending: Vec::new() }
    }

    /// Walks everything below `top`. `each` sees every name; `pulse` hears every now and then how
    /// many entries were seen since it was called last, in sum all.
    pub(super) fn walk(
        &mut self,
        tree: &impl Branching<Dir = D>,
        top: D,
        each: &mut impl FnMut(&[u8]) -> Result<()>,
        pulse: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Seen> {
        self.open.clear();
        self.pending.clear();
        let (mut seen, mut told) = (Seen::default(), 0);
        self.enter(tree, top, each, &mut seen)?;
        while let Some(level) = self.open.last_mut() {
            let Some((name, is_known)) = level.take_next(&self.pending) else {
                self.pending.truncate(level.start);
                self.open.pop();
                continue;
            };
            if !is_known && !tree.is_directory(&level.dir, name)? {
                continue;
            }
            let dir = tree.child(&level.dir, name)?;
            seen.directories += 1;
            self.enter(tree, dir, each, &mut seen)?;
            if seen.entries - told >= PULSE_ENTRIES {
                pulse(seen.entries - told)?;
                told = seen.entries;
            }
        }
        pulse(seen.entries - told)?;
        Ok(seen)
    }

    /// Lists a directory and notes what is to be visited.
    fn enter(
        &mut self,
        tree: &impl Branching<Dir = D>,
        dir: D,
        each: &mut impl FnMut(&[u8]) -> Result<()>,
        seen: &mut Seen,
    ) -> Result<()> {
        if self.open.len() == DEPTH_MAX {
            return Err(Error::Wrong(format!("directories go deeper than {DEPTH_MAX}: a loop")));
        }
        let Self { open, pending } = self;
        let start = pending.len();
        let mut entries = 0;
        tree.entries(&dir, &mut |name, file_type| {
            entries += 1;
            match file_type {
                Some(FileType::Directory) => note(pending, name, IS_DIRECTORY),
                None => note(pending, name, IS_UNKNOWN),
                Some(_) => {}
            }
            each(name)
        })?;
        seen.entries += entries;
        open.push(Level { dir, start, next: start });
        Ok(())
    }
}

fn note(pending: &mut Vec<u8>, name: &[u8], kind: u8) {
    let [low, high] = (name.len() as u16).to_le_bytes();
    pending.extend_from_slice(&[low, high, kind]);
    pending.extend_from_slice(name);
}

impl<D> Level<D> {
    /// The next name to be visited, and whether it is known to be a directory. To be asked of the last
    /// level only.
    fn take_next<'n>(&mut self, pending: &'n [u8]) -> Option<(&'n [u8], bool)> {
        let rest = pending.get(self.next..)?;
        let (&[low, high, kind], rest) = rest.split_first_chunk::<HEADER_LEN>()?;
        let name = rest.get(..usize::from(u16::from_le_bytes([low, high])))?;
        self.next += HEADER_LEN + name.len();
        Some((name, kind == IS_DIRECTORY))
    }
}
