//! A depth-first walk of a tree, based on the types in the entries.

use vfs::FileType;

use crate::error::{Error, Result};
use crate::target::{EachEntry, Target};

/// Maximum nesting of directories. More indicate a loop: a path has at most 4096 bytes.
const DEPTH_MAX: usize = 2048;

/// Number of entries between two progress reports.
const PULSE_ENTRIES: u64 = 4096;

/// A tree of directories.
pub(super) trait Branching {
    /// An open directory.
    type Dir;

    fn entries(&self, dir: &Self::Dir, each: &mut EachEntry<'_>) -> Result<()>;

    fn child(&self, dir: &Self::Dir, name: &[u8]) -> Result<Self::Dir>;

    /// Called only if the entry has no type.
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

/// Result of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Number of entries of all directories.
    pub(super) entries: u64,
    /// Number of directories among them.
    pub(super) directories: u64,
}

/// Buffers of a walk, which the next one reuses, so that no entry causes an allocation.
pub(super) struct Walker<D> {
    /// The directories from the top down to the current one.
    open: Vec<OpenLevel<D>>,
    /// Names of entries of the open directories that are or may be directories to visit. Each has two bytes of length,
    /// one that says whether the type is known, and the name.
    pending: Vec<u8>,
}

struct OpenLevel<D> {
    dir: D,
    /// Start of its names in the buffer. They end at the start of the next level.
    start: usize,
    /// Position of the next name to visit.
    next: usize,
}

const IS_DIRECTORY: u8 = 0;
const IS_UNKNOWN: u8 = 1;
const HEADER_LEN: usize = 3;

impl<D> Walker<D> {
    pub(super) fn new() -> Self {
        Self { open: Vec::new(), pending: Vec::new() }
    }

    /// Walks everything below `top`. `each` is called with every name; `pulse` occasionally with the number of entries
    /// since its last call.
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

    /// Lists a directory and collects the names to visit.
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
        open.push(OpenLevel { dir, start, next: start });
        Ok(())
    }
}

fn note(pending: &mut Vec<u8>, name: &[u8], kind: u8) {
    let [low, high] = (name.len() as u16).to_le_bytes();
    pending.extend_from_slice(&[low, high, kind]);
    pending.extend_from_slice(name);
}

impl<D> OpenLevel<D> {
    /// Returns the next name to visit, and whether it is known to be a directory. Valid for the last level only.
    fn take_next<'n>(&mut self, pending: &'n [u8]) -> Option<(&'n [u8], bool)> {
        let rest = pending.get(self.next..)?;
        let (&[low, high, kind], rest) = rest.split_first_chunk::<HEADER_LEN>()?;
        let name = rest.get(..usize::from(u16::from_le_bytes([low, high])))?;
        self.next += HEADER_LEN + name.len();
        Some((name, kind == IS_DIRECTORY))
    }
}
