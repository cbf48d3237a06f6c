//! A snapshot of a file system's tree, taken through the inode interface, and comparisons of snapshots.
//!
//! Invariants of a [`FsTree`]: paths have no leading `/`, the root's is empty; hard links of one inode share an index in
//! `inodes`, which is sorted by first path; contents are stored by granule, and only granules that are not all zeros.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use vfs::{
    Attributes, Cookie, Error, ExtentPlace, FileSystem, FileType, Ino, MappedExtent, Result,
};

mod compare;

pub use compare::Rules;

/// Granularity of contents and holes in bytes: a multiple of every supported block size up to it.
pub const GRANULE_BYTES: u64 = 4096;

/// The contents of most of an image's space. Comparing with it is much faster than a loop over bytes.
const ZEROS: [u8; GRANULE_BYTES as usize] = [0; GRANULE_BYTES as usize];

/// The directory that mkfs creates for e2fsck, which is excluded.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Deeper directories indicate a loop.
const DEPTH_MAX: usize = 200;

/// The visible state of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Attributes. The size of a directory and the allocated space differ between file systems.
    pub attributes: Attributes,
    /// Target of a symbolic link, otherwise empty.
    pub target: Vec<u8>,
    /// Extended attributes by full name.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Contents of a regular file.
    pub contents: FileContents,
}

/// The contents of a regular file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileContents {
    /// Granules that are not all zeros, by number. The last one is truncated at the size.
    pub granules: BTreeMap<u64, Box<[u8]>>,
    /// Granules with written space, as ranges of granule numbers: the others are holes or unwritten.
    pub written: Vec<Range<u64>>,
    /// Granules with unwritten space.
    pub unwritten: Vec<Range<u64>>,
}

/// A whole tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsTree {
    /// Index in `inodes` of every path.
    pub paths: BTreeMap<Vec<u8>, usize>,
    /// Every inode that has a path.
    pub inodes: Vec<Inode>,
}

impl FsTree {
    /// Takes a snapshot of a file system from its root, without `lost+found` in the root.
    ///
    /// # Errors
    /// The path at which the file system failed or is inconsistent, and the reason.
    pub fn of(fs: &dyn FileSystem) -> Result<Self, String> {
        Self::below(fs, fs.root())
    }

    /// Takes a snapshot from another directory.
    ///
    /// # Errors
    /// Returns the errors of [`FsTree::of`].
    pub fn below(fs: &dyn FileSystem, top: Ino) -> Result<Self, String> {
        let mut walk = FsTreeWalk { fs, found: BTreeMap::new() };
        let fail = |error: Error| format!("the root: {error}");
        let mut root = fs.attributes(top).map_err(fail)?;
        if fs.lookup(top, LOST_AND_FOUND).is_ok() && root.links > 2 {
            root.links -= 1;
        }
        let parent = fs.lookup(top, b"..").map_err(fail)?;
        walk.directory(&mut Vec::new(), top, parent, 0)?;
        walk.found.insert(Vec::new(), top);
        let mut tree = Self { paths: BTreeMap::new(), inodes: Vec::new() };
        let mut places = BTreeMap::new();
        for (path, ino) in walk.found {
            if let Some(&place) = places.get(&ino) {
                tree.paths.insert(path, place);
                continue;
            }
            let inode = Inode::of(fs, ino);
            let inode = inode.map_err(|error| format!("{}: {error}", path.escape_ascii()))?;
            places.insert(ino, tree.inodes.len());
            tree.paths.insert(path, tree.inodes.len());
            tree.inodes.push(inode);
        }
        if let Some(inode) = tree.inodes.first_mut() {
            inode.attributes = root;
        }
        Ok(tree)
    }

    /// Returns the part of a tree whose paths satisfy `keep`.
    pub fn filter(&self, keep: impl Fn(&[u8]) -> bool) -> Self {
        let mut tree = Self { paths: BTreeMap::new(), inodes: Vec::new() };
        let mut places = BTreeMap::new();
        for (path, place) in self.paths.iter().filter(|(path, _)| keep(path)) {
            let new = *places.entry(place).or_insert_with(|| {
                tree.inodes.push(self.inodes[*place].clone());
                tree.inodes.len() - 1
            });
            tree.paths.insert(path.clone(), new);
        }
        tree
    }

    /// Returns the inode at a path.
    pub fn get(&self, path: &[u8]) -> Option<&Inode> {
        self.paths.get(path).map(|&place| &self.inodes[place])
    }

    /// Returns the inode with this number.
    pub fn by_ino(&self, ino: Ino) -> Option<&Inode> {
        self.inodes.iter().find(|inode| inode.attributes.ino == ino)
    }

    /// Returns all paths of the inode with this number, in order.
    pub fn paths_of(&self, ino: Ino) -> impl Iterator<Item = &[u8]> {
        let is_it = move |place: usize| self.inodes[place].attributes.ino == ino;
        self.paths.iter().filter(move |(_, place)| is_it(**place)).map(|(path, _)| &path[..])
    }
}

struct FsTreeWalk<'f> {
    fs: &'f dyn FileSystem,
    found: BTreeMap<Vec<u8>, Ino>,
}

impl FsTreeWalk<'_> {
    /// Adds everything below a directory, and checks its consistency.
    fn directory(
        &mut self,
        path: &mut Vec<u8>,
        dir: Ino,
        parent: Ino,
        depth: usize,
    ) -> Result<(), String> {
        let at = |path: &[u8], what: &str| format!("{}: {what}", path.escape_ascii());
        if depth > DEPTH_MAX {
            return Err(at(path, "too deep"));
        }
        let mut entries = Vec::new();
        let listed = self.fs.readdir(dir, Cookie(0), &mut |entry| {
            entries.push((entry.name.to_vec(), entry.ino, entry.file_type));
            ControlFlow::Continue(())
        });
        listed.map_err(|error| at(path, &error.to_string()))?;
        for (name, ino, file_type) in entries {
            match &name[..] {
                b"." if ino != dir => return Err(at(path, "\".\" is another inode")),
                b".." if ino != parent => return Err(at(path, "\"..\" is not its parent")),
                b"." | b".." => continue,
                LOST_AND_FOUND if depth == 0 => continue,
                _ => {}
            }
            let before = path.len();
            if before > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            self.entry(path, (dir, &name), ino, file_type, depth)?;
            path.truncate(before);
        }
        Ok(())
    }

    fn entry(
        &mut self,
        path: &mut Vec<u8>,
        (dir, name): (Ino, &[u8]),
        ino: Ino,
        file_type: Option<FileType>,
        depth: usize,
    ) -> Result<(), String> {
        let at = |path: &[u8], what: &str| format!("{}: {what}", path.escape_ascii());
        if self.found.insert(path.clone(), ino).is_some() {
            return Err(at(path, "listed twice"));
        }
        match self.fs.lookup(dir, name) {
            Ok(found) if found == ino => {}
            Ok(_) => return Err(at(path, "lookup finds another inode than the listing")),
            Err(error) => return Err(at(path, &format!("listed, but lookup says: {error}"))),
        }
        let attributes = self.fs.attributes(ino).map_err(|error| at(path, &error.to_string()))?;
        if file_type.is_some_and(|listed| listed != attributes.file_type) {
            return Err(at(path, "its entry and its inode have different types"));
        }
        if attributes.file_type == FileType::Directory {
            self.directory(path, ino, dir, depth + 1)?;
        }
        Ok(())
    }
}

impl Inode {
    /// Reads the state of an inode.
    ///
    /// # Errors
    /// Returns the errors of the file system's methods.
    pub fn of(fs: &dyn FileSystem, ino: Ino) -> Result<Self> {
        let attributes = fs.attributes(ino)?;
        let mut names = Vec::new();
        fs.list_xattrs(ino, &mut |name| names.push(name.to_vec()))?;
        let mut xattrs = BTreeMap::new();
        for name in names {
            let value = fs.get_xattr(ino, &name)?;
            xattrs.insert(name, value);
        }
        let target = match attributes.file_type {
            FileType::Symlink => fs.readlink(ino)?,
            _ => Vec::new(),
        };
        let contents = match attributes.file_type {
            FileType::Regular => FileContents::of(fs, ino, attributes.size)?,
            _ => FileContents::default(),
        };
        Ok(Self { attributes, target, xattrs, contents })
    }
}

impl FileContents {
    fn of(fs: &dyn FileSystem, ino: Ino, size: u64) -> Result<Self> {
        let mut runs: Vec<MappedExtent> = Vec::new();
        fs.extent_map(ino, 0, u64::MAX, &mut |run| {
            runs.push(run);
            ControlFlow::Continue(())
        })?;
        let mut contents = Self::default();
        for run in runs {
            let granules =
                run.offset / GRANULE_BYTES..(run.offset + run.len).div_ceil(GRANULE_BYTES);
            match run.place {
                ExtentPlace::Hole => {}
                ExtentPlace::Unwritten(_) => add(&mut contents.unwritten, granules),
                ExtentPlace::Device(_) | ExtentPlace::Inline => {
                    add(&mut contents.written, granules);
                }
            }
        }
        let mut buffer = [0; GRANULE_BYTES as usize];
        // Unwritten space is read as well: it must read as zeros.
        for granule in contents.written.iter().chain(&contents.unwritten).cloned().flatten() {
            let offset = granule * GRANULE_BYTES;
            let wanted = (size - offset).min(GRANULE_BYTES) as usize;
            let count = fs.read(ino, offset, &mut buffer[..wanted])?;
            if count != wanted {
                return Err(Error::Invalid("a read ended before the size"));
            }
            if buffer[..wanted] != ZEROS[..wanted] {
                contents.granules.insert(granule, buffer[..wanted].into());
            }
        }
        Ok(contents)
    }

    /// Returns the bytes of a granule, padded with zeros.
    pub(crate) fn granule(&self, granule: u64) -> [u8; GRANULE_BYTES as usize] {
        let mut bytes = [0; GRANULE_BYTES as usize];
        if let Some(found) = self.granules.get(&granule) {
            bytes[..found.len()].copy_from_slice(found);
        }
        bytes
    }
}

/// Appends a range, merged with the last one if they touch.
fn add(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
        _ => ranges.push(range),
    }
}
