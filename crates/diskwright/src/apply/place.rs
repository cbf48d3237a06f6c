//! Finding where an entry of a layer goes, as unpackers do: through symbolic links, but never out of the root.

use source::oci::ContainerFault;
use vfs::{Error as FsError, FileSystem, FileType, Ino, NewInode};

use super::Fault;

/// Symbolic links that may lead to a directory, as in Linux.
const LINKS_MAX: usize = 40;

/// Longest path of a directory, in bytes: Linux's limit, which unpackers have too.
const PATH_BYTES_MAX: usize = 4096;

/// Components that the walk along a path may have, those of links included.
const STEPS_MAX: usize = 2 * PATH_BYTES_MAX;

/// A directory that a path leads to.
pub(super) struct Place {
    pub(super) dir: Ino,
    /// Its path without symbolic links.
    pub(super) path: Vec<u8>,
    /// Directories that were made on the way.
    pub(super) made: u64,
}

/// Says of a link, by its path as it was asked for, whether it may be followed.
pub(super) type Through<'a> = &'a mut dyn FnMut(&[u8]) -> bool;

/// Splits a path into that of the directory and the name in it.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}

/// What has a name, if anything has.
pub(super) fn lookup(fs: &dyn FileSystem, dir: Ino, name: &[u8]) -> vfs::Result<Option<Ino>> {
    match fs.lookup(dir, name) {
        Ok(ino) => Ok(Some(ino)),
        Err(FsError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The file at a path, whose last component is not followed if it is a link.
pub(super) fn find(fs: &dyn FileSystem, path: &[u8]) -> Result<Option<Ino>, Fault> {
    let (parent, name) = split(path);
    if name.is_empty() {
        return Ok(Some(fs.root()));
    }
    match walk(fs, parent, None, &mut |_| true)? {
        Some(place) => Ok(lookup(fs, place.dir, name)?),
        None => Ok(None),
    }
}

/// Walks to a directory. What is missing is made of `make`; without it there is no such directory.
pub(super) fn walk(
    fs: &dyn FileSystem,
    path: &[u8],
    make: Option<&NewInode>,
    through: Through<'_>,
) -> Result<Option<Place>, Fault> {
    let mut walk = Walk::new(fs.root(), path);
    let (mut links, mut steps, mut made) = (0, 0, 0);
    while let Some(part) = walk.ahead.pop() {
        steps += 1;
        if steps > STEPS_MAX {
            return Err(ContainerFault::SymlinkLoop.into());
        }
        let Part::Name { name, asked } = part else {
            walk.up();
            continue;
        };
        let dir = walk.dir();
        let found = match (lookup(fs, dir, &name)?, make) {
            (Some(found), _) => found,
            (None, None) => return Ok(None),
            (None, Some(new)) => {
                if walk.path.len() + name.len() >= PATH_BYTES_MAX {
                    return Err(ContainerFault::PathLength(PATH_BYTES_MAX).into());
                }
                made += 1;
                fs.mkdir(dir, &name, new)?
            }
        };
        match fs.attributes(found)?.file_type {
            FileType::Directory => walk.enter(&name, found),
            FileType::Symlink => {
                if asked.is_some_and(|end| !through(&path[..end])) {
                    return Ok(None);
                }
                links += 1;
                if links > LINKS_MAX {
                    return Err(ContainerFault::SymlinkLoop.into());
                }
                walk.follow(&fs.readlink(found)?);
            }
            _ if make.is_none() => return Ok(None),
            _ => {
                walk.enter(&name, found);
                return Err(ContainerFault::NotADirectory(walk.path).into());
            }
        }
    }
    Ok(Some(Place { dir: walk.dir(), path: walk.path, made }))
}

/// A piece of a path still to go.
enum Part {
    Up,
    Name {
        name: Vec<u8>,
        /// Where it ends in the path that was asked for, if it comes from there and not from a link.
        asked: Option<usize>,
    },
}

struct Walk {
    root: Ino,
    /// The directories on the way, and where the path of each ends.
    stack: Vec<(Ino, usize)>,
    path: Vec<u8>,
    /// What is to come, the next one last.
    ahead: Vec<Part>,
}

impl Walk {
    fn new(root: Ino, path: &[u8]) -> Self {
        let mut ahead = Vec::new();
        let mut end = path.len();
        for name in path.rsplit(|&b| b == b'/').filter(|name| !name.is_empty()) {
            ahead.push(Part::Name { name: name.to_vec(), asked: Some(end) });
            end = end.saturating_sub(name.len() + 1);
        }
        Self { root, stack: Vec::new(), path: Vec::new(), ahead }
    }

    fn dir(&self) -> Ino {
        self.stack.last().map_or(self.root, |top| top.0)
    }

    fn enter(&mut self, name: &[u8], dir: Ino) {
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        self.stack.push((dir, self.path.len()));
    }

    /// Goes to the parent directory; the root is its own.
    fn up(&mut self) {
        self.stack.pop();
        self.path.truncate(self.stack.last().map_or(0, |top| top.1));
    }

    fn follow(&mut self, target: &[u8]) {
        if target.starts_with(b"/") {
            self.stack.clear();
            self.path.clear();
        }
        for name in target.rsplit(|&b| b == b'/') {
            match name {
                b"" | b"." => {}
                b".." => self.ahead.push(Part::Up),
                name => self.ahead.push(Part::Name { name: name.to_vec(), asked: None }),
            }
        }
    }
}
