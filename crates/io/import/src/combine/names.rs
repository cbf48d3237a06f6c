//! The names of a combination.

use std::collections::BTreeMap;

use super::Conflict;

/// Maximum number of files; they take a few gigabytes of memory.
const COUNT_MAX: usize = 1 << 25;

/// Index of a file or directory.
pub(super) type NodeIndex = u32;

/// A file or directory, and its owner.
#[derive(Debug)]
pub(super) struct Owned {
    pub(super) what: NameKind,
    /// The source of the file, or the first source that listed the directory. `None` for a directory that only occurs
    /// in paths.
    pub(super) source: Option<u32>,
    /// True if it is a directory that a source listed.
    pub(super) is_listed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameKind {
    Directory,
    /// A non-directory; if it has several names, the index of the file.
    File(Option<u32>),
}

/// Result of resolving a path.
pub(super) enum ResolvedPath<'p> {
    /// The name is free in this directory.
    Free(NodeIndex, &'p [u8]),
    Taken(NodeIndex),
}

/// All names. The index of a removed file is not reused.
#[derive(Debug)]
pub(super) struct MergedNames {
    nodes: Vec<Owned>,
    /// Entries of directories, by index.
    within: Vec<BTreeMap<Box<[u8]>, NodeIndex>>,
    /// The last directory, which is usually that of the next entry, too.
    last: (Vec<u8>, NodeIndex),
}

const ROOT: NodeIndex = 0;

impl MergedNames {
    pub(super) fn new() -> Self {
        let root = Owned { what: NameKind::Directory, source: None, is_listed: false };
        Self { nodes: vec![root], within: vec![BTreeMap::new()], last: (Vec::new(), ROOT) }
    }

    pub(super) fn count(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn get(&self, node: NodeIndex) -> &Owned {
        &self.nodes[node as usize]
    }

    pub(super) fn get_mut(&mut self, node: NodeIndex) -> &mut Owned {
        &mut self.nodes[node as usize]
    }

    /// Returns whether it has no entries; true for non-directories.
    pub(super) fn is_empty(&self, node: NodeIndex) -> bool {
        self.within[node as usize].is_empty()
    }

    pub(super) fn insert(
        &mut self,
        dir: NodeIndex,
        name: &[u8],
        what: NameKind,
        source: u32,
    ) -> Result<NodeIndex, Conflict> {
        self.push(dir, name, Owned { what, source: Some(source), is_listed: false })
    }

    fn push(&mut self, dir: NodeIndex, name: &[u8], owned: Owned) -> Result<NodeIndex, Conflict> {
        if self.nodes.len() == COUNT_MAX {
            return Err(Conflict::TooMany(COUNT_MAX));
        }
        let node = self.nodes.len() as NodeIndex;
        self.nodes.push(owned);
        self.within.push(BTreeMap::new());
        self.within[dir as usize].insert(name.into(), node);
        Ok(node)
    }

    /// Returns the file at a path. The index of a name never changes.
    pub(super) fn find(&self, path: &[u8]) -> Option<NodeIndex> {
        let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        names.into_iter().try_fold(ROOT, |dir, name| self.within_directory(dir, name))
    }

    /// Returns the entry of a directory.
    pub(super) fn within_directory(&self, dir: NodeIndex, name: &[u8]) -> Option<NodeIndex> {
        self.within[dir as usize].get(name).copied()
    }

    /// Resolves a path. Creates missing directories on the way.
    pub(super) fn place<'p>(&mut self, path: &'p [u8]) -> Result<ResolvedPath<'p>, Conflict> {
        if path.is_empty() {
            return Ok(ResolvedPath::Taken(ROOT));
        }
        let (parent, name) = split(path);
        let is_last = parent == self.last.0 && self.get(self.last.1).what == NameKind::Directory;
        let dir = if is_last { self.last.1 } else { self.directory(parent)? };
        if !is_last {
            self.last.0.clear();
            self.last.0.extend_from_slice(parent);
            self.last.1 = dir;
        }
        Ok(match self.within[dir as usize].get(name) {
            Some(&node) => ResolvedPath::Taken(node),
            None => ResolvedPath::Free(dir, name),
        })
    }

    /// Returns the directory at a path, which is created if it is missing.
    pub(super) fn directory(&mut self, path: &[u8]) -> Result<NodeIndex, Conflict> {
        let mut dir = ROOT;
        let mut end = 0;
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            end += name.len() + usize::from(end > 0);
            dir = match self.within[dir as usize].get(name) {
                Some(&node) if self.get(node).what == NameKind::Directory => node,
                Some(_) => return Err(Conflict::NotADirectory(path[..end].to_vec())),
                None => {
                    let implied =
                        Owned { what: NameKind::Directory, source: None, is_listed: false };
                    self.push(dir, name, implied)?
                }
            };
        }
        Ok(dir)
    }
}

/// Splits a path into its directory and its last name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}
