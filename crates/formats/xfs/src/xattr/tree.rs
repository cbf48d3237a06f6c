//! Adding entries to a tree of attributes.
//!
//! It works in rounds: descend; if the leaf has room, insert; otherwise make one change of the tree (split a block
//! whose parent has room, or add a level) and descend again.

use operations::Outcome;

use super::change::AttrChange;
use super::path::{AttrPath, PathBlock, descend};
use crate::format::address::FileBlock;
use crate::format::attr::leaf_change::{self, NewEntry};
use crate::format::attr::node::{self, Child};
use crate::format::attr::{self, AttrLayout, BlockType, leaf};
use crate::format::edit::Edit;
use crate::format::inode::Fork;

/// Maximum number of rounds: each level may be split or added once, and the leaf may be split twice, because an entry
/// can take three quarters of one.
const ROUNDS_MAX: usize = 2 * node::LEVEL_MAX as usize + 4;

/// Returns the last hash of a leaf or node.
pub(super) fn last_hash(layout: AttrLayout, data: &[u8]) -> Option<u32> {
    match layout.block_type(data)? {
        BlockType::Leaf => leaf::last_hash(layout, data),
        BlockType::Node => node::last_hash(layout, data),
    }
}

impl AttrChange<'_, '_> {
    /// Adds an entry to attributes in blocks.
    pub(super) fn insert_entry(&mut self, new: &NewEntry<'_>) -> Outcome<()> {
        let layout = self.layout;
        for _ in 0..ROUNDS_MAX {
            let path = descend(self.op, self.handle, new.hash)?;
            let mut block = self.block(path[path.len() - 1])?;
            if leaf_change::has_room(layout, block.bytes(), new) {
                let index = leaf::lower_bound(layout, block.bytes(), new.hash);
                let is_last = index == leaf::count(layout, block.bytes());
                leaf_change::insert(&mut block, layout, index, new);
                if is_last {
                    self.set_last_hash(&path, path.len() - 1, new.hash)?;
                }
                return Ok(());
            }
            if self.make_room(&path, new)? {
                return Ok(());
            }
        }
        Err(self.corrupt("attribute fork", "no space after splitting its blocks"))
    }

    /// Updates the last hash of the block at `depth` of a path in the blocks above it.
    pub(super) fn set_last_hash(
        &mut self,
        path: &AttrPath,
        depth: usize,
        hash: u32,
    ) -> Outcome<()> {
        let layout = self.layout;
        for &step in path[..depth].iter().rev() {
            let mut block = self.block(step)?;
            let count = node::count(layout, block.bytes());
            if node::child(layout, block.bytes(), step.index).is_some_and(|c| c.hash != hash) {
                node::set_hash(&mut block, layout, step.index, hash);
            }
            if step.index + 1 != count {
                break;
            }
        }
        Ok(())
    }

    /// Makes one change of the tree towards room for an entry. Returns true if the entry was inserted.
    fn make_room(&mut self, path: &AttrPath, new: &NewEntry<'_>) -> Outcome<bool> {
        let layout = self.layout;
        // The lowest block whose parent has room is split.
        let mut depth = path.len() - 1;
        while depth > 0 {
            let parent = self.block(path[depth - 1])?;
            if node::count(layout, parent.bytes()) < node::capacity(layout) {
                break;
            }
            depth -= 1;
        }
        if depth == 0 {
            self.add_level(path[0])?;
            return Ok(false);
        }
        if depth == path.len() - 1 {
            return self.split_leaf(path, new);
        }
        self.split_node(path, depth)?;
        Ok(false)
    }

    /// Moves the root's contents to a new block, which becomes its only child.
    fn add_level(&mut self, root: PathBlock) -> Outcome<()> {
        let layout = self.layout;
        let geometry = self.op.fs.volume.geometry;
        let old = self.block(root)?.bytes().to_vec();
        let kind = layout.block_type(&old).unwrap_or(BlockType::Leaf);
        let level = if kind == BlockType::Node { node::level(layout, &old) + 1 } else { 1 };
        if level > node::LEVEL_MAX {
            return Err(vfs::Error::NoSpace.into());
        }
        let child = self.new_block(kind)?;
        let mut block = self.block(child)?;
        block.edit(0..layout.block_size).copy_from_slice(&old);
        attr::set_place(&mut block, &geometry, child.place);
        let hash = last_hash(layout, &old).unwrap_or_default();
        let who = attr::Identity { owner: self.handle.ino().0, block: root.place };
        let mut block = self.block(root)?;
        attr::write_info(&mut block, &geometry, BlockType::Node, who);
        node::fill(&mut block, layout, level, &[Child { hash, block: child.at }]);
        Ok(())
    }

    /// Splits the leaf at the end of a path, whose parent has room. Returns true if `new` was inserted into one of the
    /// halves.
    fn split_leaf(&mut self, path: &AttrPath, new: &NewEntry<'_>) -> Outcome<bool> {
        let layout = self.layout;
        let depth = path.len() - 1;
        let old = self.block(path[depth])?.bytes().to_vec();
        let mut all: Vec<_> = leaf_change::stored(layout, &old).collect();
        let index = leaf::lower_bound(layout, &old, new.hash);
        let fitting = leaf_change::cut_for(layout, &old, index, new);
        let cut = match fitting {
            Some(cut) => {
                all.insert(index.min(all.len()), *new);
                cut
            }
            None if all.len() < 2 => {
                return Err(self.corrupt("attribute leaf", "an entry is larger than the block"));
            }
            None => leaf_change::cut_in_half(layout, &old),
        };
        let (left, right) = all.split_at(cut.clamp(1, all.len() - 1));
        let last = (left[left.len() - 1].hash, right[right.len() - 1].hash);
        let sibling = self.new_block(BlockType::Leaf)?;
        let mut block = self.block(sibling)?;
        leaf_change::fill(&mut block, layout, right.iter().copied());
        let mut block = self.block(path[depth])?;
        leaf_change::fill(&mut block, layout, left.iter().copied());
        self.enter_sibling(path, depth, sibling, last)?;
        Ok(fitting.is_some())
    }

    /// Splits the node at `depth` of a path, whose parent has room.
    fn split_node(&mut self, path: &AttrPath, depth: usize) -> Outcome<()> {
        let layout = self.layout;
        let block = self.block(path[depth])?;
        let level = node::level(layout, block.bytes());
        let all = node::children(layout, block.bytes());
        let (left, right) = all.split_at(all.len() / 2);
        let (Some(left_last), Some(right_last)) = (left.last(), right.last()) else {
            return Err(self.corrupt("attribute node", "it is full with one entry"));
        };
        let last = (left_last.hash, right_last.hash);
        let sibling = self.new_block(BlockType::Node)?;
        node::fill(&mut self.block(sibling)?, layout, level, right);
        node::fill(&mut self.block(path[depth])?, layout, level, left);
        self.enter_sibling(path, depth, sibling, last)
    }

    /// Links a new block after the block at `depth` of a path, and updates both last hashes above them.
    fn enter_sibling(
        &mut self,
        path: &AttrPath,
        depth: usize,
        sibling: PathBlock,
        (left, right): (u32, u32),
    ) -> Outcome<()> {
        let layout = self.layout;
        let old = path[depth];
        let mut block = self.block(old)?;
        let next = attr::forward(block.bytes());
        attr::set_forward(&mut block, sibling.at);
        let mut block = self.block(sibling)?;
        attr::set_forward(&mut block, next);
        attr::set_back(&mut block, old.at);
        if next != 0 {
            attr::set_back(&mut self.block_at(next)?, sibling.at);
        }
        let parent = path[depth - 1];
        let mut block = self.block(parent)?;
        node::set_hash(&mut block, layout, parent.index, left);
        let child = Child { hash: right, block: sibling.at };
        node::insert(&mut block, layout, parent.index + 1, child);
        if parent.index + 2 == node::count(layout, block.bytes()) {
            self.set_last_hash(path, depth - 1, right)?;
        }
        Ok(())
    }

    /// Removes a block from its sibling chain and frees it. The entry in its parent stays.
    pub(super) fn free_block(&mut self, step: PathBlock) -> Outcome<()> {
        let block = self.block(step)?;
        let (back, forward) = (attr::back(block.bytes()), attr::forward(block.bytes()));
        if back != 0 {
            attr::set_forward(&mut self.block_at(back)?, forward);
        }
        if forward != 0 {
            attr::set_back(&mut self.block_at(forward)?, back);
        }
        let at = FileBlock(step.at.into());
        self.op.unmap(self.handle, Fork::Attr, at..at.plus(1))
    }
}
