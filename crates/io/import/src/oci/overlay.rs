//! Separate layers, as lower directories of overlayfs: whiteouts are character devices 0/0, and an attribute marks
//! opaque directories.

use std::collections::HashMap;

use super::tree::{
    DirectoryEntries, InodeIndex, LayerInode, LayerTree, NodeContents, implied_directory,
};
use super::whiteout::join;
use crate::{Metadata, Xattr};

/// The attribute of an opaque directory, and its value.
const OPAQUE: (&[u8], &[u8]) = (b"trusted.overlay.opaque", b"y");

/// Layers in directories named by their order, from the lowest to the highest.
pub(super) struct Overlay {
    tree: LayerTree,
    /// Number of digits of the names.
    width: usize,
    layers: usize,
    /// Directory of the current layer.
    base: InodeIndex,
    /// Files of the merged tree that the layer contains, with their inodes in the layer.
    held: HashMap<InodeIndex, InodeIndex>,
}

impl Overlay {
    pub(super) fn new(layers: usize) -> Self {
        let width = layers.saturating_sub(1).to_string().len();
        Self {
            tree: LayerTree::new(),
            width,
            layers: 0,
            base: LayerTree::ROOT,
            held: HashMap::new(),
        }
    }

    /// Starts the next layer. Its root is a copy of the merged root, unless the layer lists it.
    pub(super) fn begin(&mut self, root: &LayerInode) {
        let name = format!("{:0width$}", self.layers, width = self.width);
        self.layers += 1;
        self.base = self.tree.add(bare(root));
        self.tree.set_name(LayerTree::ROOT, name.as_bytes(), self.base);
        self.held.clear();
    }

    pub(super) fn set_root(&mut self, root: &LayerInode) {
        self.describe(self.base, root);
    }

    /// Returns the number of added files.
    pub(super) fn len(&self) -> usize {
        self.tree.len()
    }

    pub(super) fn finish(self) -> LayerTree {
        self.tree
    }

    /// Returns the layer's directory at a path; creates it as in the merged tree.
    fn directory(&mut self, merged: &LayerTree, path: &[u8]) -> InodeIndex {
        let (mut dir, mut original) = (self.base, Some(LayerTree::ROOT));
        for name in path.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            original = original.and_then(|dir| merged.lookup(dir, name));
            dir = match self.tree.lookup(dir, name) {
                Some(found) if self.tree.is_directory(found) => found,
                other => {
                    let like =
                        original.map_or_else(implied_directory, |node| bare(merged.node(node)));
                    let made = self.tree.add(like);
                    self.tree.set_name(dir, name, made);
                    // The entry that it replaces hid a directory of lower layers.
                    if other.is_some() {
                        self.set_opaque(made);
                    }
                    made
                }
            };
        }
        dir
    }

    fn describe(&mut self, dir: InodeIndex, like: &LayerInode) {
        let was_opaque = self.is_opaque(dir);
        let node = self.tree.node_mut(dir);
        (node.metadata, node.xattrs) = (like.metadata, like.xattrs.clone());
        if was_opaque {
            self.set_opaque(dir);
        }
    }

    fn is_opaque(&self, dir: InodeIndex) -> bool {
        self.tree.node(dir).xattrs.iter().any(|xattr| xattr.name == OPAQUE.0)
    }

    fn set_opaque(&mut self, dir: InodeIndex) {
        let node = self.tree.node_mut(dir);
        let mut xattrs = std::mem::take(&mut node.xattrs).into_vec();
        xattrs.push(Xattr { name: OPAQUE.0.into(), value: OPAQUE.1.into() });
        Xattr::normalize(&mut xattrs);
        node.xattrs = xattrs.into();
    }

    /// Hides a name of lower layers.
    pub(super) fn whiteout(&mut self, merged: &LayerTree, parent: &[u8], name: &[u8]) {
        let dir = self.directory(merged, parent);
        let metadata = Metadata { permissions: 0, ..implied_directory().metadata };
        let kind = NodeContents::CharDevice { major: 0, minor: 0 };
        let device = self.tree.add(LayerInode { kind, metadata, xattrs: Box::default() });
        self.tree.set_name(dir, name, device);
    }

    /// Hides the entries of a directory in lower layers.
    pub(super) fn opaque(&mut self, merged: &LayerTree, path: &[u8]) {
        let dir = self.directory(merged, path);
        self.set_opaque(dir);
    }

    /// Creates the file that is `inode` in the merged tree.
    pub(super) fn put(
        &mut self,
        merged: &LayerTree,
        parent: &[u8],
        name: &[u8],
        node: LayerInode,
        inode: InodeIndex,
    ) {
        if matches!(node.kind, NodeContents::Directory(_)) {
            let dir = self.directory(merged, &join(parent, name));
            self.describe(dir, &node);
            return;
        }
        let dir = self.directory(merged, parent);
        let made = self.tree.add(node);
        self.held.insert(inode, made);
        self.tree.set_name(dir, name, made);
    }

    /// Adds a name to a file. A file of a lower layer is copied up with its other name, as in a mounted overlay, so
    /// that they stay one file.
    pub(super) fn link(
        &mut self,
        merged: &LayerTree,
        parent: &[u8],
        name: &[u8],
        inode: InodeIndex,
        target: Option<(Vec<u8>, &[u8])>,
    ) {
        let made = match self.held.get(&inode) {
            Some(&made) => made,
            None => {
                let made = self.tree.add(merged.node(inode).clone());
                self.held.insert(inode, made);
                if let Some((parent, name)) = target {
                    let dir = self.directory(merged, &parent);
                    self.tree.set_name(dir, name, made);
                }
                made
            }
        };
        let dir = self.directory(merged, parent);
        self.tree.set_name(dir, name, made);
    }
}

/// Returns the same directory without entries.
fn bare(node: &LayerInode) -> LayerInode {
    LayerInode {
        kind: NodeContents::Directory(DirectoryEntries::new()),
        metadata: node.metadata,
        xattrs: node.xattrs.clone(),
    }
}
