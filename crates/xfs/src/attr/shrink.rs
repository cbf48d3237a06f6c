//! Removing entries from a tree of attributes, which shrinks with them.
//!
//! A block without entries is freed. A block that has become small is joined with a neighbour of the
//! same parent if both together leave a quarter of a block free, so that the next entry does not
//! split them again. A root with one child takes its contents in.

use vfs::Result;

use super::path::{Path, Step, descend, locate};
use super::read::Position;
use super::tree::last_hash;
use crate::format::attr::leaf_change;
use crate::format::attr::node::{self, Child};
use crate::format::attr::{self, BlockType, Layout, leaf};
use crate::format::edit::Edit;
use crate::inode::Handle;
use crate::op::Op;

/// Most changes after one removal: at each level a joining, then a level less for each.
const ROUNDS_MAX: usize = 4 * node::LEVEL_MAX as usize;

/// How much of a block is in use: bytes in a leaf, entries in a node.
fn fullness(layout: Layout, data: &[u8]) -> (usize, usize) {
    match layout.block_type(data) {
        Some(BlockType::Node) => (node::count(layout, data), node::capacity(layout)),
        _ => (leaf::content_size(layout, data), leaf::capacity(layout)),
    }
}

/// A block and the neighbour behind it, of the same parent, which are to become one.
struct Pair {
    depth: usize,
    left: Child,
    left_index: usize,
    right: Child,
}

impl Op<'_> {
    /// Removes an entry. What its value takes is freed already.
    pub(super) fn remove_attr_entry(
        &mut self,
        handle: &mut Handle,
        position: Position,
    ) -> Result<()> {
        let layout = self.attr_layout();
        let Position { path, index } = position;
        let depth = path.len() - 1;
        let mut block = self.attr_block(handle, path[depth])?;
        let Some(entry) = leaf::entry(layout, block.bytes(), index) else {
            return Err(handle.corrupt("attribute leaf", "an entry is not there any more"));
        };
        let hash = entry.hash;
        leaf_change::remove(&mut block, layout, index);
        let (used, room) = fullness(layout, block.bytes());
        if depth == 0 {
            return Ok(());
        }
        match leaf::last_hash(layout, block.bytes()) {
            None => self.drop_attr_block(handle, &path, depth)?,
            Some(last) if last < hash => self.set_last_attr_hash(handle, &path, depth, last)?,
            Some(_) => {}
        }
        if used <= room / 3 { self.shrink_attrs(handle, hash) } else { Ok(()) }
    }

    /// Frees block `depth` of a path, which has no entries left, and those above it that have none
    /// then.
    fn drop_attr_block(
        &mut self,
        handle: &mut Handle,
        path: &Path,
        mut depth: usize,
    ) -> Result<()> {
        let layout = self.attr_layout();
        loop {
            if depth == 0 {
                return self.become_attr_leaf(handle, path[0]);
            }
            self.free_attr_block(handle, path[depth])?;
            let parent = path[depth - 1];
            let mut block = self.attr_block(handle, parent)?;
            node::remove(&mut block, layout, parent.index);
            if let Some(last) = node::last_hash(layout, block.bytes()) {
                let is_last = parent.index == node::count(layout, block.bytes());
                return if is_last {
                    self.set_last_attr_hash(handle, path, depth - 1, last)
                } else {
                    Ok(())
                };
            }
            depth -= 1;
        }
    }

    /// Makes the root a leaf without entries.
    fn become_attr_leaf(&mut self, handle: &Handle, root: Step) -> Result<()> {
        let layout = self.attr_layout();
        let geometry = self.fs.volume.geometry;
        let who = attr::Identity { owner: handle.ino().0, block: root.place };
        let mut block = self.attr_block(handle, root)?;
        attr::write_info(&mut block, &geometry, BlockType::Leaf, who);
        leaf_change::fill(&mut block, layout, []);
        Ok(())
    }

    /// Joins blocks on the way to `hash` that have become small, and takes away levels.
    fn shrink_attrs(&mut self, handle: &mut Handle, hash: u32) -> Result<()> {
        for _ in 0..ROUNDS_MAX {
            let path = descend(self, handle, hash)?;
            if path.len() == 1 {
                return Ok(());
            }
            if let Some(child) = self.only_attr_child(handle, path[0])? {
                self.take_in_attr_child(handle, path[0], child)?;
                continue;
            }
            let Some(pair) = self.find_attr_pair(handle, &path)? else { return Ok(()) };
            self.join_attr_pair(handle, &path, &pair)?;
        }
        Ok(())
    }

    fn only_attr_child(&mut self, handle: &Handle, root: Step) -> Result<Option<u32>> {
        let layout = self.attr_layout();
        let block = self.attr_block(handle, root)?;
        let is_only = node::count(layout, block.bytes()) == 1;
        Ok(node::child(layout, block.bytes(), 0).filter(|_| is_only).map(|child| child.block))
    }

    /// Moves the contents of the root's only child into the root.
    fn take_in_attr_child(&mut self, handle: &mut Handle, root: Step, at: u32) -> Result<()> {
        let layout = self.attr_layout();
        let geometry = self.fs.volume.geometry;
        let place = locate(self, handle, at)?;
        let step = Step { at, place, index: 0 };
        let contents = self.attr_block(handle, step)?.bytes().to_vec();
        self.free_attr_block(handle, step)?;
        let mut block = self.attr_block(handle, root)?;
        block.edit(0..layout.block_size).copy_from_slice(&contents);
        attr::set_place(&mut block, &geometry, root.place);
        attr::set_forward(&mut block, 0);
        attr::set_back(&mut block, 0);
        Ok(())
    }

    /// The lowest block of a path that is small and has a neighbour it can be joined with.
    fn find_attr_pair(&mut self, handle: &Handle, path: &Path) -> Result<Option<Pair>> {
        let layout = self.attr_layout();
        for depth in (1..path.len()).rev() {
            let (used, room) = self.attr_fullness(handle, path[depth])?;
            if used > room / 3 {
                continue;
            }
            let parent = self.attr_block(handle, path[depth - 1])?;
            let children = node::children(layout, parent.bytes());
            let index = path[depth - 1].index;
            for left_index in [Some(index), index.checked_sub(1)].into_iter().flatten() {
                let Some(&[left, right]) = children.get(left_index..left_index + 2) else {
                    continue;
                };
                let mut both = 0;
                for child in [left, right] {
                    let place = locate(self, handle, child.block)?;
                    let step = Step { at: child.block, place, index: 0 };
                    both += self.attr_fullness(handle, step)?.0;
                }
                if both <= room - room / 4 {
                    return Ok(Some(Pair { depth, left, left_index, right }));
                }
            }
        }
        Ok(None)
    }

    fn attr_fullness(&mut self, handle: &Handle, step: Step) -> Result<(usize, usize)> {
        let layout = self.attr_layout();
        Ok(fullness(layout, self.attr_block(handle, step)?.bytes()))
    }

    /// Moves the entries of the right block of a pair to the left one, and frees it.
    fn join_attr_pair(&mut self, handle: &mut Handle, path: &Path, pair: &Pair) -> Result<()> {
        let layout = self.attr_layout();
        let right =
            Step { at: pair.right.block, place: locate(self, handle, pair.right.block)?, index: 0 };
        let from = self.attr_block(handle, right)?.bytes().to_vec();
        let mut block = self.attr_block_at(handle, pair.left.block)?;
        let into = block.bytes().to_vec();
        if layout.block_type(&from) != layout.block_type(&into) {
            return Err(handle.corrupt("attribute fork", "neighbours of different levels"));
        }
        if layout.block_type(&from) == Some(BlockType::Node) {
            let mut all = node::children(layout, &into);
            all.extend(node::children(layout, &from));
            let level = node::level(layout, &into);
            node::fill(&mut block, layout, level, &all);
        } else {
            let all = leaf_change::stored(layout, &into).chain(leaf_change::stored(layout, &from));
            leaf_change::fill(&mut block, layout, all);
        }
        let last = last_hash(layout, block.bytes()).unwrap_or(pair.right.hash);
        self.free_attr_block(handle, right)?;
        let parent = path[pair.depth - 1];
        let mut block = self.attr_block(handle, parent)?;
        node::remove(&mut block, layout, pair.left_index + 1);
        node::set_hash(&mut block, layout, pair.left_index, last);
        Ok(())
    }
}
