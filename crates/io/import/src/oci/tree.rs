//! A tree in memory: the result of unpacking layers, without file contents.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::ops::Bound;
use std::sync::Arc;

use super::ContainerFault;
use super::layer::PATH_BYTES_MAX;
use crate::content::ArchiveFile;
use crate::{Content, DataRun, Detached, Entry, EntryKind, Metadata, Time, Xattr};

/// Permission bits of directories that no layer lists. They belong to root.
const IMPLIED_PERMISSIONS: u16 = 0o755;

/// Maximum number of symbolic links on the way to a directory, as in Linux.
const LINKS_MAX: usize = 40;

/// Maximum number of components in the resolution of a path, including those of links.
const STEPS_MAX: usize = 2 * PATH_BYTES_MAX;

/// Index of an inode of a tree.
pub(super) type InodeIndex = u32;

/// A file of any type.
#[derive(Clone, Debug)]
pub(super) struct LayerInode {
    pub(super) kind: NodeContents,
    pub(super) metadata: Metadata,
    pub(super) xattrs: Box<[Xattr]>,
}

/// Entries of a directory.
pub(super) type DirectoryEntries = BTreeMap<Box<[u8]>, InodeIndex>;

#[derive(Clone, Debug)]
pub(super) enum NodeContents {
    Directory(DirectoryEntries),
    File(FileData),
    Symlink(Box<[u8]>),
    CharDevice { major: u32, minor: u32 },
    BlockDevice { major: u32, minor: u32 },
    Fifo,
    Socket,
}

/// Location of the contents of a file.
#[derive(Clone, Debug)]
pub(super) struct FileData {
    size: u64,
    runs: Option<Arc<[DataRun]>>,
    /// `None` if there is no data.
    place: Option<(Arc<ArchiveFile>, u64)>,
}

impl FileData {
    fn of(content: Content) -> Self {
        let (size, runs) = (content.size(), content.sparse().cloned());
        Self { size, runs, place: Detached::place_of(content) }
    }

    pub(super) fn content(&self) -> Content {
        match &self.place {
            Some((archive, offset)) => {
                Content::archived_shared(self.size, self.runs.clone(), archive, *offset)
            }
            None => Content::hole(self.size),
        }
    }
}

/// All files by index. A file without a name stays until the tree is dropped; its memory is bounded by the contents of
/// the layers.
pub(super) struct LayerTree {
    nodes: Vec<LayerInode>,
}

/// A directory that a path resolves to.
pub(super) struct ResolvedDirectory {
    pub(super) dir: InodeIndex,
    /// Its path without symbolic links.
    pub(super) path: Vec<u8>,
}

impl LayerTree {
    pub(super) const ROOT: InodeIndex = 0;

    /// Creates an empty tree.
    pub(super) fn new() -> Self {
        Self { nodes: vec![implied_directory()] }
    }

    /// Returns the number of added files, including those without a name.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn node(&self, inode: InodeIndex) -> &LayerInode {
        &self.nodes[inode as usize]
    }

    pub(super) fn node_mut(&mut self, inode: InodeIndex) -> &mut LayerInode {
        &mut self.nodes[inode as usize]
    }

    /// Adds a file without a name.
    pub(super) fn add(&mut self, node: LayerInode) -> InodeIndex {
        self.nodes.push(node);
        // The limit on the memory of names keeps this far below 2^32.
        (self.nodes.len() - 1) as InodeIndex
    }

    /// Returns the entries of a directory; `None` if it is something else.
    pub(super) fn names(&self, inode: InodeIndex) -> Option<&DirectoryEntries> {
        match &self.node(inode).kind {
            NodeContents::Directory(names) => Some(names),
            _ => None,
        }
    }

    pub(super) fn names_mut(&mut self, inode: InodeIndex) -> Option<&mut DirectoryEntries> {
        match &mut self.node_mut(inode).kind {
            NodeContents::Directory(names) => Some(names),
            _ => None,
        }
    }

    pub(super) fn is_directory(&self, inode: InodeIndex) -> bool {
        self.names(inode).is_some()
    }

    pub(super) fn lookup(&self, dir: InodeIndex, name: &[u8]) -> Option<InodeIndex> {
        self.names(dir)?.get(name).copied()
    }

    /// Returns the first name of a directory after `name`.
    pub(super) fn next_name(&self, dir: InodeIndex, name: &[u8]) -> Option<(&[u8], InodeIndex)> {
        let range = (Bound::Excluded(name), Bound::Unbounded);
        let next = self.names(dir)?.range::<[u8], _>(range).next()?;
        Some((next.0, *next.1))
    }

    /// Assigns a name to a file and removes it from its former owner.
    pub(super) fn set_name(&mut self, dir: InodeIndex, name: &[u8], inode: InodeIndex) {
        if let Some(names) = self.names_mut(dir) {
            names.insert(name.into(), inode);
        }
    }

    /// Returns the files with several names, and the number of their names.
    pub(super) fn linked_files(&self) -> BTreeMap<InodeIndex, u32> {
        let mut counts = vec![0_u32; self.nodes.len()];
        let mut directories = vec![Self::ROOT];
        while let Some(dir) = directories.pop() {
            for &inode in self.names(dir).into_iter().flat_map(btree_map::BTreeMap::values) {
                counts[inode as usize] += 1;
                if self.is_directory(inode) {
                    directories.push(inode);
                }
            }
        }
        let counts = counts.into_iter().enumerate();
        counts.filter(|(_, n)| *n > 1).map(|(inode, n)| (inode as InodeIndex, n)).collect()
    }

    /// Returns the number of names.
    pub(super) fn count(&self) -> u64 {
        let (mut count, mut directories) = (1, vec![Self::ROOT]);
        while let Some(dir) = directories.pop() {
            for &inode in self.names(dir).into_iter().flat_map(btree_map::BTreeMap::values) {
                count += 1;
                if self.is_directory(inode) {
                    directories.push(inode);
                }
            }
        }
        count
    }

    /// Resolves the path of a directory as unpackers do: through symbolic links, but never out of the root. Missing
    /// directories are created if `make`; otherwise the result is `None`. `through` decides whether a link, given its
    /// path in the request, may be followed.
    pub(super) fn walk(
        &mut self,
        path: &[u8],
        make: bool,
        through: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Option<ResolvedDirectory>, ContainerFault> {
        let mut walk = PathWalk::new(path);
        let (mut links, mut steps) = (0, 0);
        while let Some(part) = walk.ahead.pop() {
            steps += 1;
            if steps > STEPS_MAX {
                return Err(ContainerFault::SymlinkLoop);
            }
            let (dir, name) = match &part {
                PathComponent::Up => {
                    walk.up();
                    continue;
                }
                PathComponent::Name { name, .. } => (walk.dir(), name),
            };
            let found = match self.lookup(dir, name) {
                Some(found) => found,
                None if !make => return Ok(None),
                None => {
                    if walk.path.len() + name.len() >= PATH_BYTES_MAX {
                        return Err(ContainerFault::PathLength(PATH_BYTES_MAX));
                    }
                    let made = self.add(implied_directory());
                    self.set_name(dir, name, made);
                    made
                }
            };
            match &self.node(found).kind {
                NodeContents::Directory(_) => walk.enter(name, found),
                NodeContents::Symlink(target) => {
                    if let PathComponent::Name { asked: Some(end), .. } = part
                        && !through(&path[..end])
                    {
                        return Ok(None);
                    }
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(ContainerFault::SymlinkLoop);
                    }
                    walk.follow(target);
                }
                _ if !make => return Ok(None),
                _ => {
                    walk.enter(name, found);
                    return Err(ContainerFault::NotADirectory(walk.path));
                }
            }
        }
        Ok(Some(ResolvedDirectory { dir: walk.dir(), path: walk.path }))
    }
}

/// A remaining component of a path.
enum PathComponent {
    Up,
    Name {
        name: Box<[u8]>,
        /// End of the component in the requested path; `None` if it comes from a link.
        asked: Option<usize>,
    },
}

/// A resolution of a path.
struct PathWalk {
    /// The directories on the way, with the length of the path of each.
    stack: Vec<(InodeIndex, usize)>,
    path: Vec<u8>,
    /// Remaining components, the next one last.
    ahead: Vec<PathComponent>,
}

impl PathWalk {
    fn new(path: &[u8]) -> Self {
        let mut ahead = Vec::new();
        let mut end = path.len();
        for name in path.rsplit(|&b| b == b'/').filter(|name| !name.is_empty()) {
            ahead.push(PathComponent::Name { name: name.into(), asked: Some(end) });
            end = end.saturating_sub(name.len() + 1);
        }
        Self { stack: vec![(LayerTree::ROOT, 0)], path: Vec::new(), ahead }
    }

    fn dir(&self) -> InodeIndex {
        self.stack.last().map_or(LayerTree::ROOT, |top| top.0)
    }

    fn enter(&mut self, name: &[u8], dir: InodeIndex) {
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        self.stack.push((dir, self.path.len()));
    }

    /// Moves to the parent directory; the root is its own parent.
    fn up(&mut self) {
        if self.stack.len() > 1 {
            self.stack.pop();
        }
        self.path.truncate(self.stack.last().map_or(0, |top| top.1));
    }

    fn follow(&mut self, target: &[u8]) {
        if target.starts_with(b"/") {
            self.stack.truncate(1);
            self.path.clear();
        }
        for name in target.rsplit(|&b| b == b'/') {
            match name {
                b"" | b"." => {}
                b".." => self.ahead.push(PathComponent::Up),
                name => self.ahead.push(PathComponent::Name { name: name.into(), asked: None }),
            }
        }
    }
}

/// Returns a directory that no layer lists. Its time is 1970, so that the image does not depend on the time of the
/// build.
pub(super) fn implied_directory() -> LayerInode {
    let metadata = Metadata {
        permissions: IMPLIED_PERMISSIONS,
        uid: 0,
        gid: 0,
        mtime: Time::default(),
        atime: None,
        ctime: None,
    };
    LayerInode {
        kind: NodeContents::Directory(DirectoryEntries::new()),
        metadata,
        xattrs: Box::default(),
    }
}

/// Returns the node of an entry of a layer; `None` for a hard link.
pub(super) fn node_of(entry: Entry) -> Option<LayerInode> {
    let kind = match entry.kind {
        EntryKind::Directory => NodeContents::Directory(DirectoryEntries::new()),
        EntryKind::File(content) => NodeContents::File(FileData::of(content)),
        EntryKind::Symlink(target) => NodeContents::Symlink(target.into()),
        EntryKind::Hardlink(_) => return None,
        EntryKind::CharDevice { major, minor } => NodeContents::CharDevice { major, minor },
        EntryKind::BlockDevice { major, minor } => NodeContents::BlockDevice { major, minor },
        EntryKind::Fifo => NodeContents::Fifo,
        EntryKind::Socket => NodeContents::Socket,
    };
    Some(LayerInode { kind, metadata: entry.metadata, xattrs: entry.xattrs.into() })
}
