//! Keeping a tree small after entries went from a leaf.

use operation::Outcome;

use super::path::{Frame, Path};
use super::step::{Child, FILE_BLOCKS_MAX, root};
use crate::format::address::{Block, FileBlock};
use crate::format::extent::{self, ENTRY_SIZE, entry_range};
use crate::format::inode::I_BLOCK_SIZE;
use crate::inode::Handle;
use crate::op::Op;

/// Entries up to which the only node below the root is taken into it. One less than there is room
/// for, so that the next entry does not take it out again.
const TAKEN_IN_MAX: usize = 3;

impl Op<'_> {
    /// Frees nodes on `path` that are empty or fit into a neighbour, and levels that lead to next
    /// to nothing. The path is no longer good.
    pub(super) fn shrink(&mut self, file: &mut Handle, path: &Path) -> Outcome<()> {
        for level in (1..path.len()).rev() {
            let (count, room) = self.fill_of(file, &path[level]);
            let gone = if count == 0 {
                self.remove_node(file, path, level)?;
                true
            } else {
                count <= room / 2 && self.merge_node(file, path, level)?
            };
            if !gone {
                break;
            }
        }
        if self.fill_of(file, &path[0]).0 == 0 {
            write_root(file, &[], 0);
        }
        self.lower_root(file)
    }

    /// Frees an empty node.
    fn remove_node(&mut self, file: &mut Handle, path: &Path, level: usize) -> Outcome<()> {
        self.free_node(file, &path[level])?;
        let parent = path[level - 1];
        self.remove_node_entry(file, &parent, parent.taken());
        if self.fill_of(file, &parent).0 == 0 {
            return Ok(());
        }
        self.after_splice(file, path, level - 1, None)
    }

    fn free_node(&mut self, file: &mut Handle, frame: &Frame) -> Outcome<()> {
        let Some(id) = frame.buffer else { return Ok(()) };
        self.free_metadata(file, Block(self.txn.block(id)))
    }

    fn remove_node_entry(&mut self, file: &mut Handle, frame: &Frame, at: usize) {
        let (count, _) = self.fill_of(file, frame);
        self.splice(file, frame, count, at..at + 1, &[]);
    }

    /// Makes a node and one of its neighbours below the same parent one, if they fit. Whether they
    /// did.
    fn merge_node(&mut self, file: &mut Handle, path: &Path, level: usize) -> Outcome<bool> {
        let (own, parent) = (path[level], path[level - 1]);
        let at = parent.taken();
        let siblings = self.node(file, &parent)?.len();
        if let Some(before) = at.checked_sub(1) {
            let left = self.sibling(file, &parent, before)?;
            if self.append_node(file, &left, &own)? {
                self.remove_node_entry(file, &parent, at);
                return Ok(true);
            }
        }
        if at + 1 < siblings {
            let right = self.sibling(file, &parent, at + 1)?;
            if self.append_node(file, &own, &right)? {
                self.remove_node_entry(file, &parent, at + 1);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn sibling(&mut self, file: &Handle, parent: &Frame, at: usize) -> Outcome<Frame> {
        let child = Child::at(&self.node(file, parent)?, at, parent.end);
        Ok(self.enter(file, child, FileBlock(0))?.0)
    }

    /// Moves all entries of `from` behind those of `to` and frees it, if they fit.
    fn append_node(&mut self, file: &mut Handle, to: &Frame, from: &Frame) -> Outcome<bool> {
        let ((count, room), (added, _)) = (self.fill_of(file, to), self.fill_of(file, from));
        if count + added > room || to.buffer == from.buffer {
            return Ok(false);
        }
        let entries = self.node_bytes(file, from)[ENTRY_SIZE..entry_range(added).start].to_vec();
        self.splice(file, to, count, count..count, &entries);
        self.free_node(file, from)?;
        Ok(true)
    }

    /// Takes the only node below the root into it while that is small.
    fn lower_root(&mut self, file: &mut Handle) -> Outcome<()> {
        loop {
            let node = root(file)?;
            if node.depth() == 0 || node.len() > 1 {
                return Ok(());
            }
            let child = Child::at(&node, 0, FILE_BLOCKS_MAX);
            let (frame, _) = self.enter(file, child, FileBlock(0))?;
            let count = self.node(file, &frame)?.len();
            if count > TAKEN_IN_MAX {
                return Ok(());
            }
            let mut entries = [0; ENTRY_SIZE * TAKEN_IN_MAX];
            let entries = &mut entries[..ENTRY_SIZE * count];
            entries.copy_from_slice(
                &self.node_bytes(file, &frame)[ENTRY_SIZE..entry_range(count).start],
            );
            write_root(file, entries, frame.depth);
            self.free_node(file, &frame)?;
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
