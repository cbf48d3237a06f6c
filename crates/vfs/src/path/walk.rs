//! Going through everything below a directory.

use std::collections::HashSet;

use super::listing::Listing;
use super::{Order, Paths};
use crate::{Attributes, Corruption, Error, FileSystem, FileType, Ino, Result};

/// Keeps a traversal of directories finite: each may be entered once.
///
/// A directory has one name. An image in which it has two can be an endless path, or a short
/// one with more ends than there is time for. How deep directories lie in each other does not matter:
/// no format limits it.
#[derive(Default)]
pub struct DirectoryGuard {
    entered: HashSet<Ino>,
}

impl DirectoryGuard {
    /// Notes that a directory is entered.
    ///
    /// # Errors
    /// `Corrupt` if it has been entered before.
    pub fn enter(&mut self, dir: Ino) -> Result<()> {
        if !self.entered.insert(dir) {
            let problem = "the directory has a second name or contains itself";
            return Err(Corruption::new("directory tree", problem).of_inode(dir.0).into());
        }
        Ok(())
    }
}

/// A file that a [`Walk`] came to, with a copy of its path.
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
    /// The last component of the path; empty for the top itself.
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|&b| b == b'/').next().unwrap_or_default()
    }
}

/// A file that a [`Walk`] came to, whose path [`Walk::path`] has.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    /// Number of components of the path.
    pub depth: usize,
    /// Attributes of the inode.
    pub attributes: Attributes,
}

/// A file that a [`Walk`] could not read, or a directory it could not list.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.escape_ascii())]
pub struct WalkError {
    /// Path from the top without leading `/`.
    pub path: Vec<u8>,
    /// What is wrong with it.
    pub error: Error,
}

/// A depth-first walk, parents before their children, each directory's subtrees where its name
/// stands. After an error the walk goes on behind what it concerns.
///
/// As an iterator it gives everybody a copy of the path, which in a deep tree costs more than all
/// else; [`Walk::advance`] does without.
pub struct Walk<'a> {
    fs: &'a dyn FileSystem,
    steps: WalkSteps,
}

/// A [`Walk`] that borrows the file system for each step only, so that whoever holds it may do other things
/// between two of them, or keep it.
pub struct WalkSteps {
    order: Order,
    guard: DirectoryGuard,
    top: Option<Ino>,
    levels: Vec<Level>,
    path: Vec<u8>,
    /// Where the last component of `path` starts.
    name_start: usize,
    pending: Option<Ino>,
    came_again: bool,
}

struct Level {
    dir: Ino,
    listing: Listing,
    /// Length of the directory's own path.
    path_len: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(fs: &'a dyn FileSystem, top: Ino, order: Order) -> Self {
        Self { fs, steps: WalkSteps::new(top, order) }
    }

    /// Leaves out what is below the directory that was returned last.
    pub fn skip_children(&mut self) {
        self.steps.skip_children();
    }

    /// Path from the top, without leading `/`, of what the walk came to last, or could not read.
    pub fn path(&self) -> &[u8] {
        self.steps.path()
    }

    /// The last component of that path; empty for the top itself.
    pub fn name(&self) -> &[u8] {
        self.steps.name()
    }

    /// Goes on to the next file. An error concerns what has the path, and the walk goes on behind it.
    pub fn advance(&mut self) -> Option<Result<Visit>> {
        self.steps.advance(self.fs)
    }
}

impl WalkSteps {
    /// A walk from `top` down. Symbolic links are not followed.
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

    /// Leaves out what is below the directory that was returned last.
    pub fn skip_children(&mut self) {
        self.pending = None;
    }

    /// Whether the last error says that the walk came to a directory again. That is damage only if nothing was moved
    /// or removed since it began.
    pub fn came_again(&self) -> bool {
        self.came_again
    }

    /// Path from the top, without leading `/`, of what the walk came to last, or could not read.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The last component of that path; empty for the top itself.
    pub fn name(&self) -> &[u8] {
        &self.path[self.name_start..]
    }

    /// Goes on to the next file. An error concerns what has the path, and the walk goes on behind it.
    pub fn advance(&mut self, fs: &dyn FileSystem) -> Option<Result<Visit>> {
        self.came_again = false;
        if let Some(top) = self.top.take() {
            return Some(self.visit(fs, top));
        }
        if let Some(dir) = self.pending.take() {
            let listing = Listing::new(self.order);
            self.levels.push(Level { dir, listing, path_len: self.path.len() });
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
    /// Everything from `top` down, parents before their children. Symbolic links are not followed.
    pub fn walk(&self, top: Ino, order: Order) -> Walk<'a> {
        Walk::new(self.fs, top, order)
    }
}
