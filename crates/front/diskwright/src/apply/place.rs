//! Resolution of layer paths, like unpackers: symbolic links are followed, but never lead outside the root.

use import::oci::ContainerFault;
use vfs::{Error as FsError, FileSystem, FileType, Ino, NewInode};

use super::Fault;

/// Maximum number of symbolic links on a path, as in Linux.
const LINKS_MAX: usize = 40;

/// Maximum path length of a directory in bytes, as in Linux and unpackers.
const PATH_BYTES_MAX: usize = 4096;

/// Maximum number of path components in a walk, including those of links.
const STEPS_MAX: usize = 2 * PATH_BYTES_MAX;

/// Directory found by a path.
pub(super) struct ResolvedDirectory {
    pub(super) dir: Ino,
    /// Path without symbolic links.
    pub(super) path: Vec<u8>,
    /// Number of directories created on the way.
    pub(super) made: u64,
}

/// Decides whether a link, given by its requested path, may be followed.
pub(super) type Through<'a> = &'a mut dyn FnMut(&[u8]) -> bool;

/// Splits a path into directory and name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}

/// Returns the inode with a name, if it exists.
pub(super) fn lookup(fs: &dyn FileSystem, dir: Ino, name: &[u8]) -> vfs::Result<Option<Ino>> {
    match fs.lookup(dir, name) {
        Ok(ino) => Ok(Some(ino)),
        Err(FsError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the file at a path. A symbolic link in the last component is not followed.
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

/// Walks to a directory. Missing directories are created from `make`, or reported as missing if that is `None`.
pub(super) fn walk(
    fs: &dyn FileSystem,
    path: &[u8],
    make: Option<&NewInode>,
    through: Through<'_>,
) -> Result<Option<ResolvedDirectory>, Fault> {
    let mut walk = PathWalk::new(fs.root(), path);
    let (mut links, mut steps, mut made) = (0, 0, 0);
    while let Some(part) = walk.ahead.pop() {
        steps += 1;
        if steps > STEPS_MAX {
            return Err(ContainerFault::SymlinkLoop.into());
        }
        let PathPart::Name { name, asked } = part else {
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
    Ok(Some(ResolvedDirectory { dir: walk.dir(), path: walk.path, made }))
}

/// Remaining component of a path.
enum PathPart {
    Up,
    Name {
        name: Vec<u8>,
        /// End of the component in the requested path; `None` if it comes from a link.
        asked: Option<usize>,
    },
}

struct PathWalk {
    root: Ino,
    /// Directories on the current path, with the ends of their paths.
    stack: Vec<(Ino, usize)>,
    path: Vec<u8>,
    /// Remaining components, the next one last.
    ahead: Vec<PathPart>,
}

impl PathWalk {
    fn new(root: Ino, path: &[u8]) -> Self {
        let mut ahead = Vec::new();
        let mut end = path.len();
        for name in path.rsplit(|&b| b == b'/').filter(|name| !name.is_empty()) {
            ahead.push(PathPart::Name { name: name.to_vec(), asked: Some(end) });
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

    /// Moves to the parent directory; the root is its own parent.
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
                b".." => self.ahead.push(PathPart::Up),
                name => self.ahead.push(PathPart::Name { name: name.to_vec(), asked: None }),
            }
        }
    }
}
