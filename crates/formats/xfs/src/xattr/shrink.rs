//! Removing entries from a tree of attributes, and shrinking the tree.
//!
//! A block without entries is freed. A small block is joined with a neighbour below the same parent if the result is at
//! most three quarters full, so that the next entry does not split it again. A root with one child takes over its
//! contents.

use operations::Outcome;

use super::change::AttrChange;
use super::path::{AttrPath, PathBlock, descend};
use super::read::EntryPosition;
use super::tree::last_hash;
use crate::format::attr::leaf_change;
use crate::format::attr::node::{self, Child};
use crate::format::attr::{self, AttrLayout, BlockType, leaf};
use crate::format::edit::Edit;

/// Maximum number of changes after one removal: a join at each level, then the removal of each level.
const ROUNDS_MAX: usize = 4 * node::LEVEL_MAX as usize;

/// Returns how much of a block is in use, and its capacity: in bytes for a leaf, in entries for a node.
fn fullness(layout: AttrLayout, data: &[u8]) -> (usize, usize) {
    match layout.block_type(data) {
        Some(BlockType::Node) => (node::count(layout, data), node::capacity(layout)),
        _ => (leaf::content_size(layout, data), leaf::capacity(layout)),
    }
}

/// A block and its right neighbour below the same parent, which are to be joined.
struct Pair {
    depth: usize,
    left: Child,
    left_index: usize,
    right: Child,
}

impl AttrChange<'_, '_> {
    /// Removes an entry. The blocks of its value have been freed already.
    pub(super) fn remove_entry(&mut self, position: EntryPosition) -> Outcome<()> {
        let layout = self.layout;
        let EntryPosition { path, index } = position;
        let depth = path.len() - 1;
        let mut block = self.block(path[depth])?;
        let Some(entry) = leaf::entry(layout, block.bytes(), index) else {
            return Err(self.corrupt("attribute leaf", "an entry is missing"));
        };
        let hash = entry.hash;
        leaf_change::remove(&mut block, layout, index);
        let (used, room) = fullness(layout, block.bytes());
        if depth == 0 {
            return Ok(());
        }
        match leaf::last_hash(layout, block.bytes()) {
            None => self.free_empty_block(&path, depth)?,
            Some(last) if last < hash => self.set_last_hash(&path, depth, last)?,
            Some(_) => {}
        }
        if used <= room / 3 { self.shrink(hash) } else { Ok(()) }
    }

    /// Frees the empty block at `depth` of a path, and the blocks above it that become empty.
    fn free_empty_block(&mut self, path: &AttrPath, mut depth: usize) -> Outcome<()> {
        let layout = self.layout;
        loop {
            if depth == 0 {
                return self.become_leaf(path[0]);
            }
            self.free_block(path[depth])?;
            let parent = path[depth - 1];
            let mut block = self.block(parent)?;
            node::remove(&mut block, layout, parent.index);
            if let Some(last) = node::last_hash(layout, block.bytes()) {
                let is_last = parent.index == node::count(layout, block.bytes());
                return if is_last { self.set_last_hash(path, depth - 1, last) } else { Ok(()) };
            }
            depth -= 1;
        }
    }

    /// Makes the root an empty leaf.
    fn become_leaf(&mut self, root: PathBlock) -> Outcome<()> {
        let layout = self.layout;
        let geometry = self.op.fs.volume.geometry;
        let who = attr::Identity { owner: self.handle.ino().0, block: root.place };
        let mut block = self.block(root)?;
        attr::write_info(&mut block, &geometry, BlockType::Leaf, who);
        leaf_change::fill(&mut block, layout, []);
        Ok(())
    }

    /// Joins small blocks on the path to `hash`, and removes levels.
    fn shrink(&mut self, hash: u32) -> Outcome<()> {
        for _ in 0..ROUNDS_MAX {
            let path = descend(self.op, self.handle, hash)?;
            if path.len() == 1 {
                return Ok(());
            }
            if let Some(child) = self.only_child(path[0])? {
                self.take_in_child(path[0], child)?;
                continue;
            }
            let Some(pair) = self.find_pair(&path)? else { return Ok(()) };
            self.join_pair(&path, &pair)?;
        }
        Ok(())
    }

    fn only_child(&mut self, root: PathBlock) -> Outcome<Option<u32>> {
        let layout = self.layout;
        let block = self.block(root)?;
        let is_only = node::count(layout, block.bytes()) == 1;
        Ok(node::child(layout, block.bytes(), 0).filter(|_| is_only).map(|child| child.block))
    }

    /// Moves the contents of the root's only child into the root.
    fn take_in_child(&mut self, root: PathBlock, at: u32) -> Outcome<()> {
        let layout = self.layout;
        let geometry = self.op.fs.volume.geometry;
        let step = self.path_block(at)?;
        let contents = self.block(step)?.bytes().to_vec();
        self.free_block(step)?;
        let mut block = self.block(root)?;
        block.edit(0..layout.block_size).copy_from_slice(&contents);
        attr::set_place(&mut block, &geometry, root.place);
        attr::set_forward(&mut block, 0);
        attr::set_back(&mut block, 0);
        Ok(())
    }

    /// Returns the lowest block of a path that is small and can be joined with a neighbour.
    fn find_pair(&mut self, path: &AttrPath) -> Outcome<Option<Pair>> {
        let layout = self.layout;
        for depth in (1..path.len()).rev() {
            let (used, room) = self.fullness_of(path[depth])?;
            if used > room / 3 {
                continue;
            }
            let parent = self.block(path[depth - 1])?;
            let children = node::children(layout, parent.bytes());
            let index = path[depth - 1].index;
            for left_index in [Some(index), index.checked_sub(1)].into_iter().flatten() {
                let Some(&[left, right]) = children.get(left_index..left_index + 2) else {
                    continue;
                };
                let mut both = 0;
                for child in [left, right] {
                    let block = self.path_block(child.block)?;
                    both += self.fullness_of(block)?.0;
                }
                if both <= room - room / 4 {
                    return Ok(Some(Pair { depth, left, left_index, right }));
                }
            }
        }
        Ok(None)
    }

    fn fullness_of(&mut self, step: PathBlock) -> Outcome<(usize, usize)> {
        let layout = self.layout;
        Ok(fullness(layout, self.block(step)?.bytes()))
    }

    /// Moves the entries of the right block of a pair to the left one, and frees the right one.
    fn join_pair(&mut self, path: &AttrPath, pair: &Pair) -> Outcome<()> {
        let layout = self.layout;
        let right = self.path_block(pair.right.block)?;
        let from = self.block(right)?.bytes().to_vec();
        let mut block = self.block_at(pair.left.block)?;
        let into = block.bytes().to_vec();
        if layout.block_type(&from) != layout.block_type(&into) {
            return Err(self.corrupt("attribute fork", "neighbours of different levels"));
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
        self.free_block(right)?;
        let parent = path[pair.depth - 1];
        let mut block = self.block(parent)?;
        node::remove(&mut block, layout, pair.left_index + 1);
        node::set_hash(&mut block, layout, pair.left_index, last);
        Ok(())
    }
}
