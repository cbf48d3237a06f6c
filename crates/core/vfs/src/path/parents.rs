//! Paths of an inode, from parent pointers if the format has them, otherwise by a scan of all directories.

use std::collections::HashMap;

use super::listing::check_name;
use super::{Circle, Order, Paths};
use crate::{Corruption, Error, FileSystem, Ino, Result};

/// The paths of an inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathsOf {
    /// All paths, sorted, from the root and with a leading `/`. Empty if the inode has no name.
    pub paths: Vec<Vec<u8>>,
    /// True if the paths come from a scan of all directories, because the format has no parent pointers.
    pub scanned: bool,
}

/// Returns every path of an inode, one for each link.
///
/// # Errors
/// `NotFound` if the inode is not in use. `Corrupt` if parents form a cycle, lead nowhere, or a directory has several.
/// An incomplete scan fails, because it may have missed a path.
pub fn paths_of(fs: &dyn FileSystem, ino: Ino) -> Result<PathsOf> {
    fs.attributes(ino)?;
    if ino == fs.root() {
        return Ok(PathsOf { paths: vec![b"/".to_vec()], scanned: false });
    }
    let (mut paths, scanned) = match links_of(fs, ino)? {
        Some(links) => (climb(fs, ino, links)?, false),
        None => (scan(fs, ino)?, true),
    };
    paths.sort_unstable();
    Ok(PathsOf { paths, scanned })
}

/// A directory and a name in it.
type Link = (Ino, Vec<u8>);

/// Returns the links to an inode, or `None` if the format has no parent pointers.
fn links_of(fs: &dyn FileSystem, ino: Ino) -> Result<Option<Vec<Link>>> {
    let mut links = Vec::new();
    let known = fs.parents(ino, &mut |dir, name| links.push((dir, name.to_vec())))?;
    for (dir, name) in &links {
        check_name(*dir, name)?;
    }
    Ok(known.then_some(links))
}

fn damage(ino: Ino, problem: impl Into<String>) -> Error {
    Corruption::new("parent pointers", problem).of_inode(ino.0).into()
}

/// Returns the paths of `links`.
fn climb(fs: &dyn FileSystem, ino: Ino, links: Vec<Link>) -> Result<Vec<Vec<u8>>> {
    // The links of a file are usually in few directories.
    let mut known = HashMap::new();
    let mut paths = Vec::with_capacity(links.len());
    for (dir, name) in links {
        if dir == ino {
            return Err(damage(ino, "the inode is its own parent"));
        }
        let start = match known.entry(dir) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => entry.insert(dir_path(fs, dir)?),
        };
        paths.push([start.as_slice(), b"/", &name].concat());
    }
    Ok(paths)
}

/// Returns the path of a directory, empty for the root.
fn dir_path(fs: &dyn FileSystem, dir: Ino) -> Result<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let (mut current, mut circle) = (dir, Circle::default());
    while current != fs.root() {
        if circle.closes_at(current) {
            return Err(damage(dir, "its parents form a loop"));
        }
        let mut links = links_of(fs, current)?.unwrap_or_default();
        let (Some((parent, name)), true) = (links.pop(), links.is_empty()) else {
            return Err(damage(current, "a directory without exactly one parent"));
        };
        names.push(name);
        current = parent;
    }
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    Ok(path)
}

/// Returns the paths at which a walk of the whole tree finds the inode.
fn scan(fs: &dyn FileSystem, ino: Ino) -> Result<Vec<Vec<u8>>> {
    let mut paths = Vec::new();
    let mut walk = Paths::new(fs).walk(fs.root(), Order::Physical);
    while let Some(visit) = walk.advance() {
        if visit?.attributes.ino == ino {
            paths.push([b"/", walk.path()].concat());
        }
    }
    Ok(paths)
}
