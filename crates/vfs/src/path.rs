//! Paths over the inode-level interface, in the manner of `std::fs`.
//!
//! Paths are bytes with `/` between components and always start at the image's root, with or
//! without a leading `/`. Symbolic links are followed inside the image only, absolute targets
//! from its root: no path can lead outside. `..` goes to the parent that the path itself went
//! through, and stays in the root at the root.

mod change;
mod parents;

use std::collections::HashSet;
use std::ops::ControlFlow;

use crate::{
    Attributes, Cookie, Corruption, DirEntry, Error, FileSystem, FileType, Ino, NAME_LEN_MAX,
    NewInode, Result,
};

pub use parents::{PathsOf, paths_of};

/// Most symbolic links followed for one path, as Linux has it (`MAXSYMLINKS`).
pub const SYMLINKS_MAX: usize = 40;

/// Deepest directory a walk enters. Linux cannot name anything deeper than `PATH_MAX` / 2 levels
/// in one call, so what is deeper than this is taken for damage.
pub const DEPTH_MAX: usize = 4096;

/// Longest path that is resolved, symbolic link targets put in included, in bytes.
const PATH_BYTES_MAX: usize = 1 << 20;

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;

/// Entries of a directory that a walk in the directory's own order holds at a time.
const BATCH_ENTRIES: usize = 4096;

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// The path stands for what the link leads to.
    Follow,
    /// The path stands for the link.
    Keep,
}

/// The order of a directory's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By the bytes of the names. Holds one directory's names in memory.
    Sorted,
    /// As the directory lists them. Holds a bounded number of entries.
    Physical,
}

/// A file system seen through paths.
#[derive(Clone, Copy)]
pub struct Paths<'a> {
    fs: &'a dyn FileSystem,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name: 1 to 255 bytes without `/` and NUL, neither `.` nor `..`.
    pub name: Vec<u8>,
    /// The inode it names.
    pub ino: Ino,
    /// The type, where the directory itself says so.
    pub file_type: Option<FileType>,
}

impl<'a> Paths<'a> {
    /// Paths of this file system.
    pub fn new(fs: &'a dyn FileSystem) -> Self {
        Self { fs }
    }

    /// The file system.
    pub fn file_system(&self) -> &'a dyn FileSystem {
        self.fs
    }

    /// The inode a path stands for. A path that ends in `/` follows the last link and must be a
    /// directory.
    pub fn resolve(&self, path: &[u8], last: LastLink) -> Result<Ino> {
        // Components still to go, the next one last.
        let mut pending: Vec<Vec<u8>> = components(path);
        let mut parents: Vec<Ino> = Vec::new();
        let mut current = self.fs.root();
        let (mut links, mut bytes) = (0, path.len());
        let must_be_directory = path.ends_with(b"/") || path.ends_with(b"/.");
        while let Some(name) = pending.pop() {
            if name == b".." {
                current = parents.pop().unwrap_or(current);
                continue;
            }
            let found = self.fs.lookup(current, &name)?;
            let is_last = pending.is_empty() && !must_be_directory;
            let keep = is_last && last == LastLink::Keep;
            let file_type = self.fs.attributes(found)?.file_type;
            if file_type == FileType::Symlink && !keep {
                let target = self.fs.readlink(found)?;
                links += 1;
                bytes += target.len();
                if links > SYMLINKS_MAX || bytes > PATH_BYTES_MAX {
                    return Err(Error::SymlinkLoop);
                }
                if target.starts_with(b"/") {
                    current = self.fs.root();
                    parents.clear();
                }
                pending.extend(components(&target));
            } else {
                if !is_last && file_type != FileType::Directory {
                    return Err(Error::NotADirectory);
                }
                parents.push(std::mem::replace(&mut current, found));
            }
        }
        Ok(current)
    }

    /// The attributes of what a path stands for.
    pub fn metadata(&self, path: &[u8]) -> Result<Attributes> {
        self.fs.attributes(self.resolve(path, LastLink::Follow)?)
    }

    /// The attributes of the file at a path, which may be a symbolic link.
    pub fn symlink_metadata(&self, path: &[u8]) -> Result<Attributes> {
        self.fs.attributes(self.resolve(path, LastLink::Keep)?)
    }

    /// The target of the symbolic link at a path.
    pub fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.fs.readlink(self.resolve(path, LastLink::Keep)?)
    }

    /// The whole contents of a regular file of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// `FileTooLarge` if it is longer: a few bytes of an image can claim a file of terabytes.
    pub fn read(&self, path: &[u8], bytes_max: u64) -> Result<Vec<u8>> {
        let mut contents = Vec::new();
        let ino = self.resolve(path, LastLink::Follow)?;
        let attributes = self.fs.attributes(ino)?;
        if attributes.file_type == FileType::Regular && attributes.size > bytes_max {
            return Err(Error::FileTooLarge);
        }
        self.read_inode(ino, &mut |bytes| {
            contents.extend_from_slice(bytes);
            ControlFlow::Continue(())
        })?;
        Ok(contents)
    }

    /// Reads a regular file from its beginning and hands it over in pieces, holes as zeros, until
    /// the callback breaks.
    pub fn read_inode(
        &self,
        ino: Ino,
        each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let attributes = self.fs.attributes(ino)?;
        match attributes.file_type {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::Invalid("this is not a regular file")),
        }
        let len = attributes.size.min(READ_BYTES as u64) as usize;
        let mut buffer = vec![0; len];
        let mut offset = 0;
        while offset < attributes.size {
            let want = (attributes.size - offset).min(len as u64) as usize;
            let count = self.fs.read(ino, offset, &mut buffer[..want])?;
            if count == 0 || each(&buffer[..count]).is_break() {
                break;
            }
            offset += count as u64;
        }
        Ok(())
    }

    /// The entries of the directory at a path, without `.` and `..`, sorted by name.
    pub fn read_dir(&self, path: &[u8]) -> Result<Vec<Named>> {
        self.read_dir_inode(self.resolve(path, LastLink::Follow)?)
    }

    /// The entries of a directory, without `.` and `..`, sorted by name.
    pub fn read_dir_inode(&self, dir: Ino) -> Result<Vec<Named>> {
        let mut listing = Listing::new(Order::Sorted);
        listing.fill(self.fs, dir)?;
        Ok(std::iter::from_fn(|| listing.next()).collect())
    }

    /// Makes a directory and those above it that are missing; returns its inode. What is there
    /// already stays as it is.
    ///
    /// # Errors
    /// `NotADirectory` if something else is in the way.
    pub fn create_dir_all(&self, path: &[u8], new: &NewInode) -> Result<Ino> {
        let mut made = Vec::new();
        let mut current = self.fs.root();
        for name in path.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            made.extend_from_slice(b"/");
            made.extend_from_slice(name);
            current = match self.resolve(&made, LastLink::Follow) {
                Ok(ino) => ino,
                Err(Error::NotFound) => self.fs.mkdir(current, name, new)?,
                Err(error) => return Err(error),
            };
            if self.fs.attributes(current)?.file_type != FileType::Directory {
                return Err(Error::NotADirectory);
            }
        }
        Ok(current)
    }

    /// Makes the regular file at a path, or empties the one that is there, and fills it; returns
    /// its inode. `new` is for a file that was not there.
    pub fn write(&self, path: &[u8], contents: &[u8], new: &NewInode) -> Result<Ino> {
        let ino = match self.resolve(path, LastLink::Follow) {
            Ok(ino) => {
                match self.fs.attributes(ino)?.file_type {
                    FileType::Regular => self.fs.truncate(ino, 0)?,
                    FileType::Directory => return Err(Error::IsADirectory),
                    _ => return Err(Error::Exists),
                }
                ino
            }
            Err(Error::NotFound) => {
                let (parent, name) = split_last(path).ok_or(Error::IsADirectory)?;
                self.fs.create(self.resolve(parent, LastLink::Follow)?, name, new)?
            }
            Err(error) => return Err(error),
        };
        self.fs.write(ino, 0, contents)?;
        Ok(ino)
    }

    /// Everything from `top` down, parents before their children. Symbolic links are not followed.
    pub fn walk(&self, top: Ino, order: Order) -> Walk<'a> {
        Walk::new(self.fs, top, order)
    }
}

/// Parent path and last component of a path; `None` if it has no component that is a name.
pub fn split_last(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = path.iter().rposition(|&b| b != b'/')? + 1;
    let start = path[..end].iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
    let name = &path[start..end];
    (name != b"." && name != b"..").then_some((&path[..start], name))
}

/// The components of a path, the first one last; `.` and empty ones left out.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let parts = path.rsplit(|&b| b == b'/').filter(|part| !part.is_empty() && *part != b".");
    parts.map(<[u8]>::to_vec).collect()
}

/// What a directory entry must be for a path to be made of it.
fn check_name(dir: Ino, name: &[u8]) -> Result<()> {
    let problem = match () {
        () if name.is_empty() => "empty name",
        () if name.len() > NAME_LEN_MAX => "name longer than 255 bytes",
        () if name.contains(&b'/') => "name contains \"/\"",
        () if name.contains(&0) => "name contains a NUL byte",
        () => return Ok(()),
    };
    Err(Corruption::new("directory entry", problem).of_inode(dir.0).into())
}

/// Names of a directory, all in one piece of memory, and where the listing goes on.
struct Listing {
    order: Order,
    names: Vec<u8>,
    entries: Vec<Item>,
    delivered: usize,
    resume: Option<Cookie>,
}

struct Item {
    start: usize,
    len: u8,
    ino: Ino,
    file_type: Option<FileType>,
}

impl Listing {
    fn new(order: Order) -> Self {
        let resume = Some(Cookie::default());
        Self { order, names: Vec::new(), entries: Vec::new(), delivered: 0, resume }
    }

    /// Reads the next batch (sorted: everything), if there is more.
    fn fill(&mut self, fs: &dyn FileSystem, dir: Ino) -> Result<()> {
        let Some(from) = self.resume.take() else { return Ok(()) };
        self.names.clear();
        self.entries.clear();
        self.delivered = 0;
        let mut problem = Ok(());
        let (names, entries, resume) = (&mut self.names, &mut self.entries, &mut self.resume);
        let is_sorted = self.order == Order::Sorted;
        let batch = if is_sorted { usize::MAX } else { BATCH_ENTRIES };
        let mut take = |entry: DirEntry<'_>| {
            if entry.name == b"." || entry.name == b".." {
                return ControlFlow::Continue(());
            }
            problem = check_name(dir, entry.name);
            if problem.is_err() {
                return ControlFlow::Break(());
            }
            let (start, len) = (names.len(), entry.name.len() as u8);
            names.extend_from_slice(entry.name);
            entries.push(Item { start, len, ino: entry.ino, file_type: entry.file_type });
            if entries.len() < batch {
                return ControlFlow::Continue(());
            }
            *resume = Some(entry.next);
            ControlFlow::Break(())
        };
        if is_sorted {
            // They come all at once, so nobody needs cookies.
            fs.for_each_entry(dir, &mut take)?;
        } else {
            fs.readdir(dir, from, &mut take)?;
        }
        problem?;
        if self.order == Order::Sorted {
            let names = &self.names;
            let name = |item: &Item| &names[item.start..item.start + usize::from(item.len)];
            self.entries.sort_unstable_by(|a, b| name(a).cmp(name(b)));
        }
        Ok(())
    }

    fn next(&mut self) -> Option<Named> {
        let item = self.entries.get(self.delivered)?;
        self.delivered += 1;
        let name = self.names[item.start..item.start + usize::from(item.len)].to_vec();
        Some(Named { name, ino: item.ino, file_type: item.file_type })
    }
}

/// Keeps a traversal of directories finite: each may be entered once, and none too deep.
///
/// A directory has one name. An image in which it has two can be an endless path, or a short
/// one with more ends than there is time for.
#[derive(Default)]
pub struct DirectoryGuard {
    entered: HashSet<Ino>,
}

impl DirectoryGuard {
    /// Notes that a directory at `depth` levels below the top is entered.
    ///
    /// # Errors
    /// `Corrupt` if it has been entered before or lies deeper than [`DEPTH_MAX`].
    pub fn enter(&mut self, dir: Ino, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            let problem = format!("more than {DEPTH_MAX} directories inside each other");
            return Err(Corruption::new("directory tree", problem).of_inode(dir.0).into());
        }
        if !self.entered.insert(dir) {
            let problem = "the directory has a second name or contains itself";
            return Err(Corruption::new("directory tree", problem).of_inode(dir.0).into());
        }
        Ok(())
    }
}

/// A file that a [`Walk`] came to.
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
/// stands. After an error the walk goes on behind the file that it concerns.
pub struct Walk<'a> {
    fs: &'a dyn FileSystem,
    order: Order,
    guard: DirectoryGuard,
    top: Option<Ino>,
    levels: Vec<Level>,
    path: Vec<u8>,
    pending: Option<Ino>,
}

struct Level {
    dir: Ino,
    listing: Listing,
    /// Length of the directory's own path.
    path_len: usize,
}

impl<'a> Walk<'a> {
    fn new(fs: &'a dyn FileSystem, top: Ino, order: Order) -> Self {
        let guard = DirectoryGuard::default();
        let (levels, path) = (Vec::new(), Vec::new());
        Self { fs, order, guard, top: Some(top), levels, path, pending: None }
    }

    /// Leaves out what is below the directory that was returned last.
    pub fn skip_children(&mut self) {
        self.pending = None;
    }

    fn visit(&mut self, ino: Ino) -> Result<Walked> {
        let attributes = self.fs.attributes(ino)?;
        let depth = self.levels.len();
        if attributes.file_type == FileType::Directory {
            self.guard.enter(ino, depth)?;
            self.pending = Some(ino);
        }
        Ok(Walked { path: self.path.clone(), depth, attributes })
    }

    fn visit_or_fail(&mut self, ino: Ino) -> Result<Walked, WalkError> {
        self.visit(ino).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: Error) -> WalkError {
        WalkError { path: self.path.clone(), error }
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<Walked, WalkError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(top) = self.top.take() {
            return Some(self.visit_or_fail(top));
        }
        if let Some(dir) = self.pending.take() {
            let listing = Listing::new(self.order);
            self.levels.push(Level { dir, listing, path_len: self.path.len() });
        }
        loop {
            let level = self.levels.last_mut()?;
            self.path.truncate(level.path_len);
            if let Some(named) = level.listing.next() {
                if level.path_len > 0 {
                    self.path.push(b'/');
                }
                self.path.extend_from_slice(&named.name);
                return Some(self.visit_or_fail(named.ino));
            }
            if level.listing.resume.is_none() {
                self.levels.pop();
            } else if let Err(error) = level.listing.fill(self.fs, level.dir) {
                level.listing.entries.clear();
                level.listing.resume = None;
                return Some(Err(self.failed(error)));
            }
        }
    }
}
