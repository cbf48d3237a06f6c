//! Shrinking a tree after entries were removed from a leaf.

use operations::Outcome;

use super::ExtentTree;
use super::path::{ExtentPath, PathNode};
use super::step::{Child, FILE_BLOCKS_MAX, root};
use crate::format::address::{Block, FileBlock};
use crate::format::extent::{self, ENTRY_SIZE, entry_range};
use crate::format::inode::I_BLOCK_SIZE;
use crate::inode::Handle;

/// Maximum number of entries of an only child that the root absorbs. It is one less than the root's capacity, so that
/// the next entry does not add the level again.
const TAKEN_IN_MAX: usize = 3;

impl ExtentTree<'_, '_> {
    /// Frees nodes of `path` that are empty or fit into a neighbour, and levels with few entries. Invalidates the path.
    pub(super) fn shrink(&mut self, path: &ExtentPath) -> Outcome<()> {
        for level in (1..path.len()).rev() {
            let (count, room) = self.fill_of(&path[level]);
            let gone = if count == 0 {
                self.remove_node(path, level)?;
                true
            } else {
                count <= room / 2 && self.merge_node(path, level)?
            };
            if !gone {
                break;
            }
        }
        if self.fill_of(&path[0]).0 == 0 {
            write_root(self.file, &[], 0);
        }
        self.lower_root()
    }

    /// Frees an empty node.
    fn remove_node(&mut self, path: &ExtentPath, level: usize) -> Outcome<()> {
        self.free_node(&path[level])?;
        let parent = path[level - 1];
        self.remove_node_entry(&parent, parent.taken());
        if self.fill_of(&parent).0 == 0 {
            return Ok(());
        }
        self.after_splice(path, level - 1, None)
    }

    fn free_node(&mut self, frame: &PathNode) -> Outcome<()> {
        let Some(id) = frame.buffer else { return Ok(()) };
        self.op.free_metadata(self.file, Block(self.op.txn.block(id)))
    }

    fn remove_node_entry(&mut self, frame: &PathNode, at: usize) {
        let (count, _) = self.fill_of(frame);
        self.splice(frame, count, at..at + 1, &[]);
    }

    /// Merges a node with a sibling if their entries fit into one node. Returns whether it did.
    fn merge_node(&mut self, path: &ExtentPath, level: usize) -> Outcome<bool> {
        let (own, parent) = (path[level], path[level - 1]);
        let at = parent.taken();
        let siblings = self.node(&parent)?.len();
        if let Some(before) = at.checked_sub(1) {
            let left = self.sibling(&parent, before)?;
            if self.append_node(&left, &own)? {
                self.remove_node_entry(&parent, at);
                return Ok(true);
            }
        }
        if at + 1 < siblings {
            let right = self.sibling(&parent, at + 1)?;
            if self.append_node(&own, &right)? {
                self.remove_node_entry(&parent, at + 1);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn sibling(&mut self, parent: &PathNode, at: usize) -> Outcome<PathNode> {
        let child = Child::at(&self.node(parent)?, at, parent.end);
        Ok(self.enter(child, FileBlock(0))?.0)
    }

    /// Appends all entries of `from` to `to` and frees `from`, if they fit.
    fn append_node(&mut self, to: &PathNode, from: &PathNode) -> Outcome<bool> {
        let ((count, room), (added, _)) = (self.fill_of(to), self.fill_of(from));
        if count + added > room || to.buffer == from.buffer {
            return Ok(false);
        }
        let entries = self.node_bytes(from)[ENTRY_SIZE..entry_range(added).start].to_vec();
        self.splice(to, count, count..count, &entries);
        self.free_node(from)?;
        Ok(true)
    }

    /// Moves the entries of the root's only child to the root while there are few.
    fn lower_root(&mut self) -> Outcome<()> {
        loop {
            let node = root(self.file)?;
            if node.depth() == 0 || node.len() > 1 {
                return Ok(());
            }
            let child = Child::at(&node, 0, FILE_BLOCKS_MAX);
            let (frame, _) = self.enter(child, FileBlock(0))?;
            let count = self.node(&frame)?.len();
            if count > TAKEN_IN_MAX {
                return Ok(());
            }
            let mut entries = [0; ENTRY_SIZE * TAKEN_IN_MAX];
            let entries = &mut entries[..ENTRY_SIZE * count];
            entries.copy_from_slice(&self.node_bytes(&frame)[ENTRY_SIZE..entry_range(count).start]);
            write_root(self.file, entries, frame.depth);
            self.free_node(&frame)?;
        }
    }
}

fn write_root(file: &mut Handle, entries: &[u8], depth: u16) {
    let root = file.inode.i_block_mut();
    let count = (entries.len() / ENTRY_SIZE) as u16;
    extent::write_header(&mut root[..ENTRY_SIZE], count, extent::capacity(I_BLOCK_SIZE), depth);
    let (used, rest) = root[ENTRY_SIZE..].split_at_mut(entries.len());
    used.copy_from_slice(entries);
    rest.fill(0);
}
