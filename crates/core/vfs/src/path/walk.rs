//! Traversal of everything below a directory.

use std::collections::HashSet;

use super::listing::NameBuffer;
use super::{Order, Paths};
use crate::{Attributes, Corruption, Error, FileSystem, FileType, Ino, Result};

/// Keeps a traversal of directories finite: each directory may be entered once.
///
/// A valid directory has one name. An image in which it has two can contain an endless path, or exponentially many
/// short ones. The depth of directories is not limited, because no format limits it.
#[derive(Default)]
pub struct DirectoryGuard {
    entered: HashSet<Ino>,
}

impl DirectoryGuard {
    /// Records that a directory is entered.
    ///
    /// # Errors
    /// `Corrupt` if it was entered before.
    pub fn enter(&mut self, dir: Ino) -> Result<()> {
        if !self.entered.insert(dir) {
            let problem = "the directory has a second entry or contains itself";
            return Err(Corruption::new("directory tree", problem).of_inode(dir.0).into());
        }
        Ok(())
    }
}

/// A file found by a [`Walk`], with a copy of its path.
#[derive(Clone, Debug)]
pub struct Walked {
    /// Path from the top without leading `/`; empty for the top itself.
    pub path: Vec<u8>,
    /// Number of components of `path`.
    pub depth: usize,
    /// Attributes of the inode.
    pub attributes: Attributes,
}

impl Walked {
    /// Returns the last component of the path; empty for the top itself.
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|&b| b == b'/').next().unwrap_or_default()
    }
}

/// A file found by a [`Walk`]; its path is [`Walk::path`].
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    /// Number of components of the path.
    pub depth: usize,
    /// Attributes of the inode.
    pub attributes: Attributes,
}

/// A file that a [`Walk`] could not read, or a directory that it could not list.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.escape_ascii())]
pub struct WalkError {
    /// Path from the top without leading `/`.
    pub path: Vec<u8>,
    /// The error.
    pub error: Error,
}

/// A depth-first walk, parents before their children. The subtree of a directory follows the directory's own entry.
/// After an error the walk continues behind the file in error.
///
/// The iterator returns a copy of each path, which dominates the cost in deep trees; [`Walk::advance`] makes no copies.
pub struct Walk<'a> {
    fs: &'a dyn FileSystem,
    steps: WalkSteps,
}

/// A [`Walk`] that borrows the file system for each step only, so that a caller can use the file system between steps.
pub struct WalkSteps {
    order: Order,
    guard: DirectoryGuard,
    top: Option<Ino>,
    levels: Vec<WalkLevel>,
    path: Vec<u8>,
    /// Start of the last component in `path`.
    name_start: usize,
    pending: Option<Ino>,
    came_again: bool,
}

struct WalkLevel {
    dir: Ino,
    listing: NameBuffer,
    /// Length of the directory's own path.
    path_len: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(fs: &'a dyn FileSystem, top: Ino, order: Order) -> Self {
        Self { fs, steps: WalkSteps::new(top, order) }
    }

    /// Skips the contents of the directory that was returned last.
    pub fn skip_children(&mut self) {
        self.steps.skip_children();
    }

    /// Returns the path of the last file or error, from the top, without leading `/`.
    pub fn path(&self) -> &[u8] {
        self.steps.path()
    }

    /// Returns the last component of that path; empty for the top itself.
    pub fn name(&self) -> &[u8] {
        self.steps.name()
    }

    /// Moves to the next file. An error concerns the file at [`Self::path`], and the walk continues behind it.
    pub fn advance(&mut self) -> Option<Result<Visit>> {
        self.steps.advance(self.fs)
    }
}

impl WalkSteps {
    /// Creates a walk from `top` down. Symbolic links are not followed.
    pub fn new(top: Ino, order: Order) -> Self {
        let guard = DirectoryGuard::default();
        let (levels, path) = (Vec::new(), Vec::new());
        Self {
            order,
            guard,
            top: Some(top),
            levels,
            path,
            name_start: 0,
            pending: None,
            came_again: false,
        }
    }

    /// Skips the contents of the directory that was returned last.
    pub fn skip_children(&mut self) {
        self.pending = None;
    }

    /// Returns whether the last error was a directory found a second time. That is damage only if nothing was moved or
    /// removed since the walk began.
    pub fn came_again(&self) -> bool {
        self.came_again
    }

    /// Returns the path of the last file or error, from the top, without leading `/`.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the last component of that path; empty for the top itself.
    pub fn name(&self) -> &[u8] {
        &self.path[self.name_start..]
    }

    /// Moves to the next file. An error concerns the file at [`Self::path`], and the walk continues behind it.
    pub fn advance(&mut self, fs: &dyn FileSystem) -> Option<Result<Visit>> {
        self.came_again = false;
        if let Some(top) = self.top.take() {
            return Some(self.visit(fs, top));
        }
        if let Some(dir) = self.pending.take() {
            let listing = NameBuffer::new(self.order);
            self.levels.push(WalkLevel { dir, listing, path_len: self.path.len() });
        }
        loop {
            let Some(level) = self.levels.last_mut() else {
                self.path.clear();
                self.name_start = 0;
                return None;
            };
            self.path.truncate(level.path_len);
            self.name_start = self.name_start.min(level.path_len);
            if let Some(entry) = level.listing.next() {
                if level.path_len > 0 {
                    self.path.push(b'/');
                }
                self.name_start = self.path.len();
                self.path.extend_from_slice(entry.name);
                let found = entry.sound(level.dir).map(|entry| entry.ino);
                return Some(found.and_then(|ino| self.visit(fs, ino)));
            }
            if !level.listing.has_more() {
                self.levels.pop();
            } else if let Err(error) = level.listing.fill(fs, level.dir) {
                self.name_start =
                    self.path.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
                return Some(Err(error));
            }
        }
    }

    fn visit(&mut self, fs: &dyn FileSystem, ino: Ino) -> Result<Visit> {
        let attributes = fs.attributes(ino)?;
        if attributes.file_type == FileType::Directory {
            self.guard.enter(ino).inspect_err(|_| self.came_again = true)?;
            self.pending = Some(ino);
        }
        Ok(Visit { depth: self.levels.len(), attributes })
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<Walked, WalkError>;

    fn next(&mut self) -> Option<Self::Item> {
        let visited = self.advance()?;
        let path = self.steps.path.clone();
        Some(match visited {
            Ok(Visit { depth, attributes }) => Ok(Walked { path, depth, attributes }),
            Err(error) => Err(WalkError { path, error }),
        })
    }
}

impl<'a> Paths<'a> {
    /// Walks everything from `top` down, parents before their children. Symbolic links are not followed.
    pub fn walk(&self, top: Ino, order: Order) -> Walk<'a> {
        Walk::new(self.fs, top, order)
    }
}
