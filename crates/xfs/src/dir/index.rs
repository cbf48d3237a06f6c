//! Making room in the hash index of a node directory, and giving blocks back that it needs no more.
//!
//! The index grows in rounds: where a leaf is full, one block is split whose parent has room, or a
//! level is added at the root, which never moves; then the search starts again. When an entry goes,
//! the path is looked at from the leaf up: an empty block goes, and two neighbours below one parent
//! become one if they leave a quarter of it free. A root with one child takes that child's place.
//!
//! A node names the highest hash of each child. Blocks of one level are chained in both directions.

use vfs::{Error, Result};

use super::find::{Path, Spot, check_index_block};
use super::node::{leaf_at, leaf_number};
use super::state::DirState;
use super::view::{DirBuf, NewBlock, View};
use crate::format::address::FileBlock;
use crate::format::dir::leaf::{self, ENTRY_SIZE, LEVELS_MAX, LeafEntry, LeafKind};
use crate::format::dir::{Part, magic};
use crate::format::edit::Edit;
use crate::inode::Handle;
use crate::op::Op;

impl Op<'_> {
    pub(super) fn index_buffer(
        &mut self,
        dir: &Handle,
        state: &mut DirState,
        at: FileBlock,
    ) -> Result<DirBuf> {
        self.dir_buffer(dir, Some(&mut state.maps), at, Part::Leaf)
    }

    /// Adds a block of a kind to the index.
    fn new_index_block(
        &mut self,
        dir: &mut Handle,
        state: &mut DirState,
        kind: LeafKind,
    ) -> Result<(FileBlock, DirBuf)> {
        let layout = self.dir_layout();
        state.set_changed();
        let at = leaf_at(&layout, state.leaves.take());
        if at >= layout.free_first() {
            return Err(Error::NoSpace);
        }
        let magic = if kind == LeafKind::Node { magic::NODE } else { magic::LEAFN };
        let buf = self.dir_new(dir, Some(&mut state.maps), at, NewBlock::Leaf(magic))?;
        Ok((at, buf))
    }

    fn drop_index_block(
        &mut self,
        dir: &mut Handle,
        state: &mut DirState,
        at: FileBlock,
    ) -> Result<()> {
        let layout = self.dir_layout();
        state.set_changed();
        let number = leaf_number(&layout, at);
        state.buffers.forget(number);
        state.leaves.give_back(number);
        self.dir_drop(dir, Some(&mut state.maps), at)
    }

    /// Splits one block of the path to a full leaf, or adds a level.
    pub(super) fn split_once(
        &mut self,
        dir: &mut Handle,
        state: &mut DirState,
        path: &Path,
    ) -> Result<()> {
        let layout = self.dir_layout();
        let mut child = path.leaf;
        for &(at, index) in path.nodes.iter().rev() {
            let parent = self.index_buffer(dir, state, at)?;
            let table = leaf::table(&layout, self.dir_bytes(parent));
            if table.count < layout.leaf_capacity() {
                return self.split(dir, state, child, (parent, index));
            }
            child = at;
        }
        self.add_level(dir, state)
    }

    /// Moves the upper half of a block into a new one behind it.
    fn split(
        &mut self,
        dir: &mut Handle,
        state: &mut DirState,
        at: FileBlock,
        (parent, index): (DirBuf, usize),
    ) -> Result<()> {
        let layout = self.dir_layout();
        let old = self.index_buffer(dir, state, at)?;
        let kind = leaf::kind(&layout, self.dir_bytes(old)).unwrap_or(LeafKind::Many);
        let (new_at, new) = self.new_index_block(dir, state, kind)?;
        let block = self.dir_bytes(old);
        let table = leaf::table(&layout, block);
        let level = if kind == LeafKind::Node { leaf::level(&layout, block) } else { 0 };
        let (_, forw) = leaf::siblings(block);
        let keep = table.count / 2;
        let moved = block[table.at(keep)..table.end()].to_vec();
        let (low, high) = (table.entry(block, keep - 1).hash, table.last_hash(block));

        let mut held = self.held(new);
        held.edit(table.start..table.start + moved.len()).copy_from_slice(&moved);
        leaf::set_counts(&layout, &mut held, table.count - keep, level.into());
        leaf::set_back(&mut held, at.0 as u32);
        leaf::set_forw(&mut held, forw);
        let mut held = self.held(old);
        leaf::set_counts(&layout, &mut held, keep, level.into());
        leaf::set_forw(&mut held, new_at.0 as u32);
        self.set_sibling(dir, state, forw, |held| leaf::set_back(held, new_at.0 as u32))?;

        let mut held = self.held(parent);
        let above = leaf::level(&layout, held.bytes());
        let table = leaf::table(&layout, held.bytes());
        let entry = table.entry(held.bytes(), index);
        leaf::set_entry(&mut held, &table, index, LeafEntry { hash: low, ..entry });
        let new_entry = LeafEntry { hash: high, address: new_at.0 as u32 };
        leaf::insert_at(&mut held, &table, index + 1, new_entry);
        leaf::set_counts(&layout, &mut held, table.count + 1, above.into());
        if kind == LeafKind::Many {
            self.make_buffer(dir, state, at)?;
            self.make_buffer(dir, state, new_at)?;
        }
        Ok(())
    }

    /// Changes a neighbour, if there is one.
    fn set_sibling(
        &mut self,
        dir: &Handle,
        state: &mut DirState,
        at: u32,
        change: impl FnOnce(&mut super::view::Held<'_, '_>),
    ) -> Result<()> {
        if at != 0 {
            let layout = self.dir_layout();
            let at = check_index_block(dir, &layout, at)?;
            let buf = self.index_buffer(dir, state, at)?;
            change(&mut self.held(buf));
        }
        Ok(())
    }

    /// Moves what the root has into a new block below it.
    fn add_level(&mut self, dir: &mut Handle, state: &mut DirState) -> Result<()> {
        let layout = self.dir_layout();
        let root = self.index_buffer(dir, state, layout.leaf_first())?;
        let block = self.dir_bytes(root);
        let kind = leaf::kind(&layout, block).unwrap_or(LeafKind::Many);
        let level = if kind == LeafKind::Node { leaf::level(&layout, block) } else { 0 };
        if level >= LEVELS_MAX {
            return Err(Error::NoSpace);
        }
        let (at, new) = self.new_index_block(dir, state, kind)?;
        let block = self.dir_bytes(root);
        let table = leaf::table(&layout, block);
        let rows = block[table.start..table.end()].to_vec();
        let hash = table.last_hash(block);
        let mut held = self.held(new);
        held.edit(table.start..table.end()).copy_from_slice(&rows);
        leaf::set_counts(&layout, &mut held, table.count, level.into());
        let mut held = self.held(root);
        leaf::set_kind(&layout, &mut held, LeafKind::Node);
        leaf::set_counts(&layout, &mut held, 1, usize::from(level) + 1);
        leaf::set_entry(&mut held, &table, 0, LeafEntry { hash, address: at.0 as u32 });
        Ok(())
    }

    /// Whether the index still has an entry where it was found before.
    pub(super) fn is_still_there(
        &mut self,
        dir: &Handle,
        state: &mut DirState,
        spot: &Spot,
        hash: u32,
    ) -> Result<bool> {
        if spot.is_waiting {
            return Ok(false);
        }
        let layout = self.dir_layout();
        let buf = self.index_buffer(dir, state, spot.leaf)?;
        let block = self.dir_bytes(buf);
        let table = leaf::table(&layout, block);
        let entry = LeafEntry { hash, address: layout.address(spot.number, spot.offset) };
        let is_leaf = leaf::kind(&layout, block) == Some(LeafKind::Many);
        Ok(is_leaf && spot.index < table.count && table.entry(block, spot.index) == entry)
    }

    /// The way to the leaf that an entry is in. `path` leads to the first leaf with its hash, which may be
    /// one before its own.
    fn path_to(
        &mut self,
        dir: &Handle,
        state: &mut DirState,
        mut path: Path,
        spot: &Spot,
    ) -> Result<Path> {
        for _ in 0..spot.hops {
            self.advance(dir, state, &mut path)?;
        }
        if path.leaf == spot.leaf {
            return Ok(path);
        }
        let problem = format!("block {} is not where its siblings say", spot.leaf);
        Err(dir.corrupt("directory leaf", problem))
    }

    /// Takes an entry out of the index. `path` leads to the first leaf with its hash; it is looked for if
    /// it is needed and not known.
    pub(super) fn remove_hash(
        &mut self,
        dir: &mut Handle,
        state: &mut DirState,
        path: Option<Path>,
        (spot, hash): (&Spot, u32),
    ) -> Result<()> {
        let layout = self.dir_layout();
        let path = path.map(|path| self.path_to(dir, state, path, spot)).transpose()?;
        let buf = self.index_buffer(dir, state, spot.leaf)?;
        let mut held = self.held(buf);
        let table = leaf::table(&layout, held.bytes());
        let stale = leaf::stale(&layout, held.bytes()) + 1;
        leaf::set_stale(&mut held, &table, spot.index);
        leaf::set_counts(&layout, &mut held, table.count, stale);
        if path.as_ref().is_some_and(|path| path.nodes.is_empty()) {
            return Ok(());
        }
        let live = table.count.saturating_sub(stale);
        let leaf = leaf_number(&layout, spot.leaf);
        state.buffers.note_live(leaf, None, live);
        if live + state.buffers.count(leaf) > layout.leaf_capacity() / 2 {
            return Ok(());
        }
        let mut path = match path {
            Some(path) => path,
            None => {
                let mut view = View::new(self, dir);
                view.maps = Some(&mut state.maps);
                let (path, _) = view.descend(hash, |_, _| (), |_, _, _| true)?;
                self.path_to(dir, state, path, spot)?
            }
        };
        if path.nodes.is_empty() {
            return Ok(());
        }
        self.shrink(dir, state, &mut path)
    }

    /// Goes on to the next leaf.
    fn advance(&mut self, dir: &Handle, state: &mut DirState, path: &mut Path) -> Result<()> {
        let layout = self.dir_layout();
        let depth = path.nodes.len();
        while let Some((at, index)) = path.nodes.pop() {
            let node = self.index_buffer(dir, state, at)?;
            if index + 1 < leaf::table(&layout, self.dir_bytes(node)).count {
                path.nodes.push((at, index + 1));
                break;
            }
        }
        while let Some(&(at, index)) = path.nodes.last() {
            let node = self.index_buffer(dir, state, at)?;
            let block = self.dir_bytes(node);
            let child = leaf::table(&layout, block).entry(block, index).address;
            let child = check_index_block(dir, &layout, child)?;
            if path.nodes.len() == depth {
                path.leaf = child;
                return Ok(());
            }
            path.nodes.push((child, 0));
        }
        Err(dir.corrupt("directory node", "a leaf that its siblings lead to is not below it"))
    }

    /// Joins or gives back blocks along a path, from the leaf up.
    fn shrink(&mut self, dir: &mut Handle, state: &mut DirState, path: &mut Path) -> Result<()> {
        let layout = self.dir_layout();
        let mut child = path.leaf;
        while let Some((at, index)) = path.nodes.pop() {
            let parent = self.index_buffer(dir, state, at)?;
            if self.live(dir, state, child)? == 0 {
                self.unlink(dir, state, child)?;
                self.remove_child(parent, index);
                self.drop_index_block(dir, state, child)?;
            } else if !self.try_join(dir, state, (parent, index), child)? {
                return Ok(());
            }
            let block = self.dir_bytes(parent);
            let table = leaf::table(&layout, block);
            if table.count > 0 {
                let last = table.last_hash(block);
                self.set_hash_above(dir, state, &path.nodes, last)?;
            }
            child = at;
        }
        self.lower_root(dir, state)
    }

    /// Entries of a block of the index that are not stale, and that is all of them: nothing waits.
    fn live(&mut self, dir: &Handle, state: &mut DirState, at: FileBlock) -> Result<usize> {
        let layout = self.dir_layout();
        self.merge_waiting(dir, state, at, None)?;
        let buf = self.index_buffer(dir, state, at)?;
        let block = self.dir_bytes(buf);
        let count = leaf::table(&layout, block).count;
        let is_node = leaf::kind(&layout, block) == Some(LeafKind::Node);
        Ok(if is_node { count } else { count.saturating_sub(leaf::stale(&layout, block)) })
    }

    /// Takes a block out of the chain of its level.
    fn unlink(&mut self, dir: &Handle, state: &mut DirState, at: FileBlock) -> Result<()> {
        let buf = self.index_buffer(dir, state, at)?;
        let (back, forw) = leaf::siblings(self.dir_bytes(buf));
        self.set_sibling(dir, state, back, |held| leaf::set_forw(held, forw))?;
        self.set_sibling(dir, state, forw, |held| leaf::set_back(held, back))
    }

    fn remove_child(&mut self, parent: DirBuf, index: usize) {
        let layout = self.dir_layout();
        let mut held = self.held(parent);
        let table = leaf::table(&layout, held.bytes());
        let level = leaf::level(&layout, held.bytes());
        leaf::remove_at(&mut held, &table, index);
        leaf::set_counts(&layout, &mut held, table.count.saturating_sub(1), level.into());
    }

    /// Joins a child with the one behind or before it below the same parent. False if they do not fit
    /// into one block with room to spare.
    fn try_join(
        &mut self,
        dir: &mut Handle,
        state: &mut DirState,
        (parent, index): (DirBuf, usize),
        child: FileBlock,
    ) -> Result<bool> {
        let layout = self.dir_layout();
        let most = layout.leaf_capacity() / 4 * 3;
        let live = self.live(dir, state, child)?;
        if live > layout.leaf_capacity() / 2 {
            return Ok(false);
        }
        for left in [Some(index), index.checked_sub(1)].into_iter().flatten() {
            let block = self.dir_bytes(parent);
            let table = leaf::table(&layout, block);
            if left + 1 >= table.count {
                continue;
            }
            let other = if left == index { left + 1 } else { left };
            let other = check_index_block(dir, &layout, table.entry(block, other).address)?;
            if live + self.live(dir, state, other)? > most {
                continue;
            }
            let (low, high) = if left == index { (child, other) } else { (other, child) };
            let hash = self.join(dir, state, low, high)?;
            let mut held = self.held(parent);
            leaf::set_entry(&mut held, &table, left, LeafEntry { hash, address: low.0 as u32 });
            self.remove_child(parent, left + 1);
            self.drop_index_block(dir, state, high)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Moves all entries of a block to the end of the one before it; the highest hash then.
    fn join(
        &mut self,
        dir: &Handle,
        state: &mut DirState,
        low: FileBlock,
        high: FileBlock,
    ) -> Result<u32> {
        let layout = self.dir_layout();
        let to = self.index_buffer(dir, state, low)?;
        let from = self.index_buffer(dir, state, high)?;
        let kinds = [to, from].map(|buf| leaf::kind(&layout, self.dir_bytes(buf)));
        let (_, forw) = leaf::siblings(self.dir_bytes(to));
        if kinds[0] != kinds[1] || u64::from(forw) != high.0 {
            let problem = format!("blocks {low} and {high} are not neighbours of one level");
            return Err(dir.corrupt("directory node", problem));
        }
        let is_node = kinds[0] == Some(LeafKind::Node);
        if !is_node {
            leaf::compact(&layout, &mut self.held(to));
            leaf::compact(&layout, &mut self.held(from));
        }
        self.unlink(dir, state, high)?;
        let block = self.dir_bytes(from);
        let table = leaf::table(&layout, block);
        let rows = block[table.start..table.end()].to_vec();
        let mut held = self.held(to);
        let level = if is_node { leaf::level(&layout, held.bytes()) } else { 0 };
        let table = leaf::table(&layout, held.bytes());
        held.edit(table.end()..table.end() + rows.len()).copy_from_slice(&rows);
        let count = table.count + rows.len() / ENTRY_SIZE;
        leaf::set_counts(&layout, &mut held, count, level.into());
        let last = leaf::table(&layout, held.bytes()).last_hash(held.bytes());
        if !is_node {
            self.make_buffer(dir, state, low)?;
        }
        Ok(last)
    }

    /// Puts the only child of the root in its place, as long as it has but one.
    fn lower_root(&mut self, dir: &mut Handle, state: &mut DirState) -> Result<()> {
        let layout = self.dir_layout();
        let root = self.index_buffer(dir, state, layout.leaf_first())?;
        for _ in 0..LEVELS_MAX {
            let block = self.dir_bytes(root);
            let table = leaf::table(&layout, block);
            if leaf::kind(&layout, block) != Some(LeafKind::Node) || table.count > 1 {
                break;
            }
            if table.count == 0 {
                let mut held = self.held(root);
                leaf::set_kind(&layout, &mut held, LeafKind::Many);
                leaf::set_counts(&layout, &mut held, 0, 0);
                break;
            }
            let at = check_index_block(dir, &layout, table.entry(block, 0).address)?;
            self.merge_waiting(dir, state, at, None)?;
            let child = self.index_buffer(dir, state, at)?;
            let block = self.dir_bytes(child);
            let kind = leaf::kind(&layout, block).unwrap_or(LeafKind::Many);
            // What is the level in a node is the number of stale entries in a leaf.
            let second = leaf::stale(&layout, block);
            let table = leaf::table(&layout, block);
            let rows = block[table.start..table.end()].to_vec();
            let mut held = self.held(root);
            leaf::set_kind(&layout, &mut held, kind);
            held.edit(table.start..table.end()).copy_from_slice(&rows);
            leaf::set_counts(&layout, &mut held, table.count, second);
            self.drop_index_block(dir, state, at)?;
        }
        Ok(())
    }
}
