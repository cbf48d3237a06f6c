//! A flattened image as a stream of entries, in the order of a directory source.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::tree::{InodeIndex, LayerTree, NodeContents};
use crate::{Entry, EntryKind, Progress, Source, SourceError};

/// A tree that can be read many times.
pub(super) struct Flat {
    tree: LayerTree,
    /// Number of names of each file with more than one.
    linked: BTreeMap<InodeIndex, u32>,
    count: u64,
}

impl Flat {
    pub(super) fn new(tree: LayerTree) -> Self {
        let (linked, count) = (tree.linked_files(), tree.count());
        Self { tree, linked, count }
    }
}

/// Reads the flattened tree of an image. Contents can be read at any time and from any thread.
pub struct ContainerSource {
    flat: Arc<Flat>,
    /// The directories above the last entry, each with the length of its path.
    stack: Vec<(InodeIndex, usize)>,
    path: Vec<u8>,
    /// First names of files with several names.
    first_names: HashMap<InodeIndex, Vec<u8>>,
    done: u64,
}

impl ContainerSource {
    pub(super) fn new(flat: Arc<Flat>) -> Self {
        let (stack, path) = (Vec::new(), Vec::new());
        Self { flat, stack, path, first_names: HashMap::new(), done: 0 }
    }

    /// Moves to the next file.
    fn advance(&mut self) -> Option<InodeIndex> {
        if self.done == 0 {
            return Some(LayerTree::ROOT);
        }
        while let Some(&(dir, len)) = self.stack.last() {
            let start = if len == 0 { 0 } else { len + 1 };
            let before = self.path.get(start..).unwrap_or_default();
            if let Some((name, inode)) = self.flat.tree.next_name(dir, before) {
                self.path.truncate(len);
                if len > 0 {
                    self.path.push(b'/');
                }
                self.path.extend_from_slice(name);
                return Some(inode);
            }
            self.path.truncate(len);
            self.stack.pop();
        }
        None
    }

    fn kind(&mut self, inode: InodeIndex) -> EntryKind {
        if self.flat.linked.contains_key(&inode) {
            if let Some(first) = self.first_names.get(&inode) {
                return EntryKind::Hardlink(first.clone());
            }
            self.first_names.insert(inode, self.path.clone());
        }
        match &self.flat.tree.node(inode).kind {
            NodeContents::Directory(_) => {
                self.stack.push((inode, self.path.len()));
                EntryKind::Directory
            }
            NodeContents::File(data) => EntryKind::File(data.content()),
            NodeContents::Symlink(target) => EntryKind::Symlink(target.to_vec()),
            &NodeContents::CharDevice { major, minor } => EntryKind::CharDevice { major, minor },
            &NodeContents::BlockDevice { major, minor } => EntryKind::BlockDevice { major, minor },
            NodeContents::Fifo => EntryKind::Fifo,
            NodeContents::Socket => EntryKind::Socket,
        }
    }
}

impl Source for ContainerSource {
    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        let Some(inode) = self.advance() else { return Ok(None) };
        self.done += 1;
        let kind = self.kind(inode);
        let node = self.flat.tree.node(inode);
        let is_link = matches!(kind, EntryKind::Hardlink(_));
        let xattrs = if is_link { Vec::new() } else { node.xattrs.to_vec() };
        let (path, metadata) = (self.path.clone(), node.metadata);
        Ok(Some(Entry { path, kind, metadata, xattrs, inode: None }))
    }

    fn read(&mut self, _: &mut [u8]) -> Result<usize, SourceError> {
        Ok(0)
    }

    fn entries_min(&mut self) -> u64 {
        self.flat.count
    }

    fn progress(&self) -> Progress {
        Progress { done: self.done, total: Some(self.flat.count) }
    }
}
