//! Applies layers to a tree, from the lowest to the highest.
//!
//! The result does not depend on the position of whiteouts within a layer: they are applied before its other entries,
//! so they affect lower layers only. Hard links may refer to files of lower layers that a whiteout removes.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use super::layer::ENTRY_BYTES;
use super::overlay::Overlay;
use super::tree::{InodeIndex, LayerTree, NodeContents, node_of};
use super::whiteout::{Meaning, meaning, split};
use super::{ContainerFault, Limits};
use crate::{Entry, EntryKind, SourceError};

/// The tree of the layers applied so far.
pub(super) struct Flattener<'a> {
    image: &'a str,
    limits: &'a Limits,
    tree: LayerTree,
    overlay: Option<Overlay>,
}

/// The application of one layer.
struct Application<'a> {
    tree: &'a mut LayerTree,
    overlay: Option<&'a mut Overlay>,
    /// Files that aufs stores for its hard links.
    unnamed: HashMap<Vec<u8>, InodeIndex>,
}

impl<'a> Flattener<'a> {
    /// Creates an empty tree. For an overlay, each of `layers` layers is kept separately.
    pub(super) fn new(image: &'a str, limits: &'a Limits, layers: usize, is_overlay: bool) -> Self {
        let overlay = is_overlay.then(|| Overlay::new(layers));
        Self { image, limits, tree: LayerTree::new(), overlay }
    }

    /// Applies the next layer.
    pub(super) fn apply(&mut self, blob: &str, entries: Vec<Entry>) -> Result<(), SourceError> {
        let (image, limit) = (self.image, self.limits.names_bytes);
        let fail = |fault: ContainerFault, path: &[u8]| fault.of_entry(image, blob, path);
        if let Some(overlay) = &mut self.overlay {
            overlay.begin(self.tree.node(LayerTree::ROOT));
        }
        let mut layer = Application {
            tree: &mut self.tree,
            overlay: self.overlay.as_mut(),
            unnamed: HashMap::new(),
        };
        let mut meanings = Vec::with_capacity(entries.len());
        let mut lower_targets = HashMap::new();
        for (at, entry) in entries.iter().enumerate() {
            let meaning = meaning(&entry.path).map_err(|fault| fail(fault, &entry.path))?;
            if let (Meaning::File, EntryKind::Hardlink(target)) = (&meaning, &entry.kind) {
                let found = layer.find(target).map_err(|fault| fail(fault, &entry.path))?;
                lower_targets.extend(found.map(|found| (at, found)));
            }
            meanings.push(meaning);
        }
        layer.hide(&entries, &meanings).map_err(|(fault, path)| fail(fault, path))?;
        for (at, (entry, meaning)) in entries.into_iter().zip(meanings).enumerate() {
            match meaning {
                Meaning::File => {
                    let path = entry.path.clone();
                    let lower = lower_targets.get(&at).copied();
                    layer.put(entry, lower).map_err(|fault| fail(fault, &path))?;
                    // A path may imply two thousand directories.
                    if layer.files() * ENTRY_BYTES > limit {
                        return Err(fail(ContainerFault::Names { limit }, &path));
                    }
                }
                Meaning::Unnamed => layer.keep_unnamed(entry),
                Meaning::Whiteout(_) | Meaning::Opaque(_) | Meaning::Nothing => {}
            }
        }
        Ok(())
    }

    /// Returns the merged tree, or the tree with separate layers.
    pub(super) fn finish(self) -> LayerTree {
        match self.overlay {
            Some(overlay) => overlay.finish(),
            None => self.tree,
        }
    }
}

impl Application<'_> {
    /// Returns the number of files in memory.
    fn files(&self) -> u64 {
        (self.tree.len() + self.overlay.as_ref().map_or(0, |overlay| overlay.len())) as u64
    }

    /// Returns the file at a path. Does not follow a link at its end.
    fn find(&mut self, path: &[u8]) -> Result<Option<InodeIndex>, ContainerFault> {
        let (parent, name) = split(path);
        if name.is_empty() {
            return Ok(Some(LayerTree::ROOT));
        }
        let place = self.tree.walk(parent, false, &mut |_| true)?;
        Ok(place.and_then(|place| self.tree.lookup(place.dir, name)))
    }

    /// Removes everything that the whiteouts of the layer hide.
    fn hide<'e>(
        &mut self,
        entries: &'e [Entry],
        meanings: &[Meaning],
    ) -> Result<(), (ContainerFault, &'e [u8])> {
        // If the layer replaces a lower layer's link by a directory, the target of the link is not affected.
        let own = OnceCell::new();
        let own_directories = || {
            let directory = |entry: &'e Entry| {
                matches!(entry.kind, EntryKind::Directory).then_some(&entry.path[..])
            };
            entries.iter().filter_map(directory).collect::<HashSet<&[u8]>>()
        };
        let mut through = |link: &[u8]| !own.get_or_init(own_directories).contains(link);
        for (entry, meaning) in entries.iter().zip(meanings) {
            let hidden = match meaning {
                Meaning::Whiteout(path) => self.hide_name(path, &mut through),
                Meaning::Opaque(path) => self.hide_names(path, &mut through),
                _ => Ok(()),
            };
            hidden.map_err(|fault| (fault, &entry.path[..]))?;
        }
        Ok(())
    }

    fn hide_name(
        &mut self,
        path: &[u8],
        through: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), ContainerFault> {
        let (parent, name) = split(path);
        let Some(place) = self.tree.walk(parent, false, through)? else { return Ok(()) };
        let removed = self.tree.names_mut(place.dir).and_then(|names| names.remove(name));
        if removed.is_some()
            && let Some(overlay) = &mut self.overlay
        {
            overlay.whiteout(self.tree, &place.path, name);
        }
        Ok(())
    }

    fn hide_names(
        &mut self,
        path: &[u8],
        through: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), ContainerFault> {
        let Some(place) = self.tree.walk(path, false, through)? else { return Ok(()) };
        let Some(names) = self.tree.names_mut(place.dir) else { return Ok(()) };
        names.clear();
        if let Some(overlay) = &mut self.overlay {
            overlay.opaque(self.tree, &place.path);
        }
        Ok(())
    }

    fn keep_unnamed(&mut self, entry: Entry) {
        let path = entry.path.clone();
        if let Some(node) = node_of(entry)
            && !matches!(node.kind, NodeContents::Directory(_))
        {
            let inode = self.tree.add(node);
            self.unnamed.insert(path, inode);
        }
    }

    /// Creates a file. `lower` is the target of a hard link in the lower layers.
    fn put(&mut self, entry: Entry, lower: Option<InodeIndex>) -> Result<(), ContainerFault> {
        if entry.path.is_empty() {
            self.set_root(entry);
            return Ok(());
        }
        let path = entry.path.clone();
        let (parent, name) = split(&path);
        if let EntryKind::Hardlink(target) = &entry.kind {
            return self.link(parent, name, target, lower);
        }
        let Some(node) = node_of(entry) else { return Ok(()) };
        let Some(place) = self.tree.walk(parent, true, &mut |_| true)? else { return Ok(()) };
        let existing = self.tree.lookup(place.dir, name);
        let inode = match existing.filter(|&existing| self.tree.is_directory(existing)) {
            // A directory keeps its entries, and gets new attributes.
            Some(existing) if matches!(node.kind, NodeContents::Directory(_)) => {
                let old = self.tree.node_mut(existing);
                (old.metadata, old.xattrs) = (node.metadata, node.xattrs.clone());
                existing
            }
            _ => {
                let inode = self.tree.add(node.clone());
                self.tree.set_name(place.dir, name, inode);
                inode
            }
        };
        if let Some(overlay) = &mut self.overlay {
            overlay.put(self.tree, &place.path, name, node, inode);
        }
        Ok(())
    }

    fn set_root(&mut self, entry: Entry) {
        let root = self.tree.node_mut(LayerTree::ROOT);
        (root.metadata, root.xattrs) = (entry.metadata, entry.xattrs.into());
        if let Some(overlay) = &mut self.overlay {
            overlay.set_root(self.tree.node(LayerTree::ROOT));
        }
    }

    fn link(
        &mut self,
        parent: &[u8],
        name: &[u8],
        target: &[u8],
        lower: Option<InodeIndex>,
    ) -> Result<(), ContainerFault> {
        let Some(place) = self.tree.walk(parent, true, &mut |_| true)? else { return Ok(()) };
        let now = self.find(target)?;
        let unnamed = || self.unnamed.get(target).copied();
        let Some(inode) = now.or(lower).or_else(unnamed) else {
            return Err(ContainerFault::LinkTarget(target.to_vec()));
        };
        if self.tree.is_directory(inode) {
            return Err(ContainerFault::LinkToDirectory(target.to_vec()));
        }
        self.tree.set_name(place.dir, name, inode);
        let target = match now {
            Some(_) => {
                let (parent, name) = split(target);
                let place = self.tree.walk(parent, false, &mut |_| true)?;
                place.map(|place| (place.path, name))
            }
            None => None,
        };
        if let Some(overlay) = &mut self.overlay {
            overlay.link(self.tree, &place.path, name, inode, target);
        }
        Ok(())
    }
}
