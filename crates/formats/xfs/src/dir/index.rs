//! Making room in the hash index of a node directory, and freeing its empty blocks.
//!
//! The index grows in rounds. If a leaf is full, one block whose parent has room is split, or a level is added at the
//! root, which never moves; then the search starts again. When an entry is removed, the path shrinks from the leaf up:
//! an empty block is freed, and two neighbours below one parent are joined if the result is at most three quarters
//! full. A root with one child takes over that child's contents.
//!
//! A node stores the highest hash of each child. Blocks of one level are linked in both directions.

use operations::Outcome;
use vfs::Error;

use super::change::{DirBufferId, HeldDirBlock, NewBlock};
use super::find::{IndexPath, Spot, check_index_block};
use super::node::NodeChange;
use crate::format::address::FileBlock;
use crate::format::dir::leaf::{self, ENTRY_SIZE, LEVELS_MAX, LeafEntry, LeafKind};
use crate::format::dir::magic;
use crate::format::edit::Edit;

impl NodeChange<'_, '_> {
    /// Adds a block to the index.
    fn new_index_block(&mut self, kind: LeafKind) -> Outcome<(FileBlock, DirBufferId)> {
        let layout = self.dir.layout;
        self.state.set_changed();
        let at = layout.leaf_at(self.state.leaves.take());
        if at >= layout.free_first() {
            return Err(Error::NoSpace.into());
        }
        let magic = if kind == LeafKind::Node { magic::NODE } else { magic::LEAFN };
        let buf = self.dir.create(at, NewBlock::Leaf(magic))?;
        Ok((at, buf))
    }

    fn free_index_block(&mut self, at: FileBlock) -> Outcome<()> {
        let layout = self.dir.layout;
        self.state.set_changed();
        let number = layout.leaf_number(at);
        self.state.insert_buffer.forget(number);
        self.state.leaves.give_back(number);
        self.dir.free(at)
    }

    /// Splits one block on the path to a full leaf, or adds a level.
    pub(super) fn split_once(&mut self, path: &IndexPath) -> Outcome<()> {
        let layout = self.dir.layout;
        let mut child = path.leaf;
        for &(at, index) in path.nodes.iter().rev() {
            let parent = self.index_buffer(at)?;
            let table = leaf::table(&layout, self.dir.bytes(parent));
            if table.count < layout.leaf_capacity() {
                return self.split(child, (parent, index));
            }
            child = at;
        }
        self.add_level()
    }

    /// Moves the upper half of a block into a new block after it.
    fn split(&mut self, at: FileBlock, (parent, index): (DirBufferId, usize)) -> Outcome<()> {
        let layout = self.dir.layout;
        let old = self.index_buffer(at)?;
        let kind = leaf::kind(&layout, self.dir.bytes(old)).unwrap_or(LeafKind::Many);
        let (new_at, new) = self.new_index_block(kind)?;
        let block = self.dir.bytes(old);
        let table = leaf::table(&layout, block);
        let level = if kind == LeafKind::Node { leaf::level(&layout, block) } else { 0 };
        let (_, forw) = leaf::siblings(block);
        let keep = table.count / 2;
        let moved = block[table.at(keep)..table.end()].to_vec();
        let (low, high) = (table.entry(block, keep - 1).hash, table.last_hash(block));

        let mut held = self.dir.held(new);
        held.edit(table.start..table.start + moved.len()).copy_from_slice(&moved);
        leaf::set_counts(&layout, &mut held, table.count - keep, level.into());
        leaf::set_back(&mut held, at.0 as u32);
        leaf::set_forw(&mut held, forw);
        let mut held = self.dir.held(old);
        leaf::set_counts(&layout, &mut held, keep, level.into());
        leaf::set_forw(&mut held, new_at.0 as u32);
        self.set_sibling(forw, |held| leaf::set_back(held, new_at.0 as u32))?;

        let mut held = self.dir.held(parent);
        let above = leaf::level(&layout, held.bytes());
        let table = leaf::table(&layout, held.bytes());
        let entry = table.entry(held.bytes(), index);
        leaf::set_entry(&mut held, &table, index, LeafEntry { hash: low, ..entry });
        let new_entry = LeafEntry { hash: high, address: new_at.0 as u32 };
        leaf::insert_at(&mut held, &table, index + 1, new_entry);
        leaf::set_counts(&layout, &mut held, table.count + 1, above.into());
        if kind == LeafKind::Many {
            self.make_buffer(at)?;
            self.make_buffer(new_at)?;
        }
        Ok(())
    }

    /// Calls `change` with a sibling, if there is one.
    fn set_sibling(
        &mut self,
        at: u32,
        change: impl FnOnce(&mut HeldDirBlock<'_, '_>),
    ) -> Outcome<()> {
        if at != 0 {
            let layout = self.dir.layout;
            let at = check_index_block(self.dir.handle, &layout, at)?;
            let buf = self.index_buffer(at)?;
            change(&mut self.dir.held(buf));
        }
        Ok(())
    }

    /// Moves the contents of the root into a new block below it.
    fn add_level(&mut self) -> Outcome<()> {
        let layout = self.dir.layout;
        let root = self.index_buffer(layout.leaf_first())?;
        let block = self.dir.bytes(root);
        let kind = leaf::kind(&layout, block).unwrap_or(LeafKind::Many);
        let level = if kind == LeafKind::Node { leaf::level(&layout, block) } else { 0 };
        if level >= LEVELS_MAX {
            return Err(Error::NoSpace.into());
        }
        let (at, new) = self.new_index_block(kind)?;
        let block = self.dir.bytes(root);
        let table = leaf::table(&layout, block);
        let rows = block[table.start..table.end()].to_vec();
        let hash = table.last_hash(block);
        let mut held = self.dir.held(new);
        held.edit(table.start..table.end()).copy_from_slice(&rows);
        leaf::set_counts(&layout, &mut held, table.count, level.into());
        let mut held = self.dir.held(root);
        leaf::set_kind(&layout, &mut held, LeafKind::Node);
        leaf::set_counts(&layout, &mut held, 1, usize::from(level) + 1);
        leaf::set_entry(&mut held, &table, 0, LeafEntry { hash, address: at.0 as u32 });
        Ok(())
    }

    /// Returns whether the index still has an entry at the location where it was found before.
    pub(super) fn is_still_there(&mut self, spot: &Spot) -> Outcome<bool> {
        if spot.is_buffered {
            return Ok(false);
        }
        let layout = self.dir.layout;
        let buf = self.index_buffer(spot.leaf)?;
        let block = self.dir.bytes(buf);
        let table = leaf::table(&layout, block);
        let entry = spot.entry(&layout);
        let is_leaf = leaf::kind(&layout, block) == Some(LeafKind::Many);
        Ok(is_leaf && spot.index < table.count && table.entry(block, spot.index) == entry)
    }

    /// Returns the path to the leaf of an entry. `path` leads to the first leaf that may have its hash, which may be an
    /// earlier one.
    fn path_to(&mut self, mut path: IndexPath, spot: &Spot) -> Outcome<IndexPath> {
        for _ in 0..spot.hops {
            self.advance(&mut path)?;
        }
        if path.leaf == spot.leaf {
            return Ok(path);
        }
        let problem = format!("block {} is not at the position that its siblings say", spot.leaf);
        Err(self.dir.corrupt("directory leaf", problem))
    }

    /// Removes an entry from the index. `path` leads to the first leaf that may have its hash. If `path` is `None`, it
    /// is searched for when needed. Returns whether the root of the index may be a leaf afterwards.
    pub(super) fn remove_hash(&mut self, path: Option<IndexPath>, spot: &Spot) -> Outcome<bool> {
        let layout = self.dir.layout;
        let is_root = spot.leaf == layout.leaf_first();
        let path = path.map(|path| self.path_to(path, spot)).transpose()?;
        let buf = self.index_buffer(spot.leaf)?;
        let mut held = self.dir.held(buf);
        let table = leaf::table(&layout, held.bytes());
        let stale = leaf::stale(&layout, held.bytes()) + 1;
        leaf::set_stale(&mut held, &table, spot.index);
        leaf::set_counts(&layout, &mut held, table.count, stale);
        if path.as_ref().is_some_and(|path| path.nodes.is_empty()) {
            return Ok(is_root);
        }
        let live = table.count.saturating_sub(stale);
        let leaf = layout.leaf_number(spot.leaf);
        self.state.insert_buffer.note_live(leaf, None, live);
        if live + self.state.insert_buffer.count(leaf) > layout.leaf_capacity() / 2 {
            return Ok(is_root);
        }
        let mut path = match path {
            Some(path) => path,
            None => {
                let (path, _) = self.view().descend(spot.hash, |_, _| (), |_, _, _| true)?;
                self.path_to(path, spot)?
            }
        };
        if path.nodes.is_empty() {
            return Ok(is_root);
        }
        self.shrink(&mut path)?;
        Ok(true)
    }

    /// Advances a path to the next leaf.
    fn advance(&mut self, path: &mut IndexPath) -> Outcome<()> {
        let layout = self.dir.layout;
        let depth = path.nodes.len();
        while let Some((at, index)) = path.nodes.pop() {
            let node = self.index_buffer(at)?;
            if index + 1 < leaf::table(&layout, self.dir.bytes(node)).count {
                path.nodes.push((at, index + 1));
                break;
            }
        }
        while let Some(&(at, index)) = path.nodes.last() {
            let node = self.index_buffer(at)?;
            let block = self.dir.bytes(node);
            let child = leaf::table(&layout, block).entry(block, index).address;
            let child = check_index_block(self.dir.handle, &layout, child)?;
            if path.nodes.len() == depth {
                path.leaf = child;
                return Ok(());
            }
            path.nodes.push((child, 0));
        }
        Err(self.dir.corrupt("directory node", "a leaf that its siblings point to is not below it"))
    }

    /// Joins or frees blocks along a path, from the leaf up.
    fn shrink(&mut self, path: &mut IndexPath) -> Outcome<()> {
        let layout = self.dir.layout;
        let mut child = path.leaf;
        while let Some((at, index)) = path.nodes.pop() {
            let parent = self.index_buffer(at)?;
            if self.live(child)? == 0 {
                self.unlink(child)?;
                self.remove_child(parent, index);
                self.free_index_block(child)?;
            } else if !self.try_join((parent, index), child)? {
                return Ok(());
            }
            let block = self.dir.bytes(parent);
            let table = leaf::table(&layout, block);
            if table.count > 0 {
                let last = table.last_hash(block);
                self.set_hash_above(&path.nodes, last)?;
            }
            child = at;
        }
        self.lower_root()
    }

    /// Merges buffered entries into an index block, and returns its number of entries that are not stale.
    fn live(&mut self, at: FileBlock) -> Outcome<usize> {
        let layout = self.dir.layout;
        self.merge_buffered(at, None)?;
        let buf = self.index_buffer(at)?;
        let block = self.dir.bytes(buf);
        let count = leaf::table(&layout, block).count;
        let is_node = leaf::kind(&layout, block) == Some(LeafKind::Node);
        Ok(if is_node { count } else { count.saturating_sub(leaf::stale(&layout, block)) })
    }

    /// Removes a block from the sibling chain of its level.
    fn unlink(&mut self, at: FileBlock) -> Outcome<()> {
        let buf = self.index_buffer(at)?;
        let (back, forw) = leaf::siblings(self.dir.bytes(buf));
        self.set_sibling(back, |held| leaf::set_forw(held, forw))?;
        self.set_sibling(forw, |held| leaf::set_back(held, back))
    }

    fn remove_child(&mut self, parent: DirBufferId, index: usize) {
        let layout = self.dir.layout;
        let mut held = self.dir.held(parent);
        let table = leaf::table(&layout, held.bytes());
        let level = leaf::level(&layout, held.bytes());
        leaf::remove_at(&mut held, &table, index);
        leaf::set_counts(&layout, &mut held, table.count.saturating_sub(1), level.into());
    }

    /// Joins a child with its right or left neighbour below the same parent. Returns false if the result would be too
    /// full.
    fn try_join(
        &mut self,
        (parent, index): (DirBufferId, usize),
        child: FileBlock,
    ) -> Outcome<bool> {
        let layout = self.dir.layout;
        let most = layout.leaf_capacity() / 4 * 3;
        let live = self.live(child)?;
        if live > layout.leaf_capacity() / 2 {
            return Ok(false);
        }
        for left in [Some(index), index.checked_sub(1)].into_iter().flatten() {
            let block = self.dir.bytes(parent);
            let table = leaf::table(&layout, block);
            if left + 1 >= table.count {
                continue;
            }
            let other = if left == index { left + 1 } else { left };
            let other =
                check_index_block(self.dir.handle, &layout, table.entry(block, other).address)?;
            if live + self.live(other)? > most {
                continue;
            }
            let (low, high) = if left == index { (child, other) } else { (other, child) };
            let hash = self.join(low, high)?;
            let mut held = self.dir.held(parent);
            leaf::set_entry(&mut held, &table, left, LeafEntry { hash, address: low.0 as u32 });
            self.remove_child(parent, left + 1);
            self.free_index_block(high)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Moves all entries of a block to the end of the one before it. Returns the highest hash.
    fn join(&mut self, low: FileBlock, high: FileBlock) -> Outcome<u32> {
        let layout = self.dir.layout;
        let to = self.index_buffer(low)?;
        let from = self.index_buffer(high)?;
        let kinds = [to, from].map(|buf| leaf::kind(&layout, self.dir.bytes(buf)));
        let (_, forw) = leaf::siblings(self.dir.bytes(to));
        if kinds[0] != kinds[1] || u64::from(forw) != high.0 {
            let problem = format!("blocks {low} and {high} are not neighbours of one level");
            return Err(self.dir.corrupt("directory node", problem));
        }
        let is_node = kinds[0] == Some(LeafKind::Node);
        if !is_node {
            leaf::compact(&layout, &mut self.dir.held(to));
            leaf::compact(&layout, &mut self.dir.held(from));
        }
        self.unlink(high)?;
        let block = self.dir.bytes(from);
        let table = leaf::table(&layout, block);
        let rows = block[table.start..table.end()].to_vec();
        let mut held = self.dir.held(to);
        let level = if is_node { leaf::level(&layout, held.bytes()) } else { 0 };
        let table = leaf::table(&layout, held.bytes());
        held.edit(table.end()..table.end() + rows.len()).copy_from_slice(&rows);
        let count = table.count + rows.len() / ENTRY_SIZE;
        leaf::set_counts(&layout, &mut held, count, level.into());
        let last = leaf::table(&layout, held.bytes()).last_hash(held.bytes());
        if !is_node {
            self.make_buffer(low)?;
        }
        Ok(last)
    }

    /// Moves the contents of the root's only child into the root, while it has only one.
    fn lower_root(&mut self) -> Outcome<()> {
        let layout = self.dir.layout;
        let root = self.index_buffer(layout.leaf_first())?;
        for _ in 0..LEVELS_MAX {
            let block = self.dir.bytes(root);
            let table = leaf::table(&layout, block);
            if leaf::kind(&layout, block) != Some(LeafKind::Node) || table.count > 1 {
                break;
            }
            if table.count == 0 {
                let mut held = self.dir.held(root);
                leaf::set_kind(&layout, &mut held, LeafKind::Many);
                leaf::set_counts(&layout, &mut held, 0, 0);
                break;
            }
            let at = check_index_block(self.dir.handle, &layout, table.entry(block, 0).address)?;
            self.merge_buffered(at, None)?;
            let child = self.index_buffer(at)?;
            let block = self.dir.bytes(child);
            let kind = leaf::kind(&layout, block).unwrap_or(LeafKind::Many);
            // A leaf has its count of stale entries where a node has its level.
            let second = leaf::stale(&layout, block);
            let table = leaf::table(&layout, block);
            let rows = block[table.start..table.end()].to_vec();
            let mut held = self.dir.held(root);
            leaf::set_kind(&layout, &mut held, kind);
            held.edit(table.start..table.end()).copy_from_slice(&rows);
            leaf::set_counts(&layout, &mut held, table.count, second);
            self.free_index_block(at)?;
        }
        Ok(())
    }
}
