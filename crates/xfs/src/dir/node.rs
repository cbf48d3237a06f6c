//! Directories of node form: any number of data blocks and leaves, and an index of free space.

use transaction::Corruption;
use vfs::{Error, Result};

use super::find::{Path, Spot};
use super::leaf::insert_hash;
use super::state::DirState;
use super::view::{DirBuf, NewBlock, View};
use super::{Entry, Found};
use crate::format::address::FileBlock;
use crate::format::dir::data;
use crate::format::dir::free::{self, Header};
use crate::format::dir::leaf::{self, LeafEntry};
use crate::format::dir::{Layout, Part, magic};
use crate::format::edit::Edit;
use crate::inode::Handle;
use crate::op::Op;

/// Most rounds of making room in the tree for one entry: each splits one block or adds a level, and a
/// path has five blocks.
const ROUNDS_MAX: usize = 16;

impl Op<'_> {
    /// Adds an entry.
    pub(super) fn add_node(
        &mut self,
        dir: &mut Handle,
        state: &mut DirState,
        entry: Entry<'_>,
    ) -> Result<()> {
        let layout = self.dir_layout();
        let mut view = View::new(self, dir);
        view.maps = Some(&mut state.maps);
        view.buffers = Some(&state.buffers);
        let search = view.search(entry.name)?;
        if search.spot.is_some() {
            return Err(Error::Exists);
        }
        let size = layout.entry_size(entry.name.len());
        let (number, buf) = match self.find_room(dir, state, size)? {
            Some(number) => {
                let at = layout.data_at(number);
                (number, self.dir_buffer(dir, Some(&mut state.maps), at, Part::Data)?)
            }
            None => self.append_data(dir, state)?,
        };
        let mut held = self.held(buf);
        let before = data::best_len(&layout, held.bytes());
        let Some(offset) = data::insert(&layout, &mut held, &entry.into()) else {
            let problem = format!("free space of data block {number}");
            return Err(dir.corrupt("directory free index", problem));
        };
        let best = data::best_len(&layout, held.bytes());
        if best != before {
            self.set_best(dir, state, number, best)?;
        }
        let new = LeafEntry { hash: search.hash, address: layout.address(number, offset) };
        if search.is_absent && self.add_waiting(dir, state, search.path.leaf, new)? {
            return Ok(());
        }
        self.insert_node(dir, state, search.path, new)
    }

    /// Puts a hash into its leaf.
    fn insert_node(
        &mut self,
        dir: &mut Handle,
        state: &mut DirState,
        mut path: Path,
        new: LeafEntry,
    ) -> Result<()> {
        let layout = self.dir_layout();
        for _ in 0..ROUNDS_MAX {
            let at = path.leaf;
            self.merge_waiting(dir, state, at, None)?;
            let leaf = self.dir_buffer(dir, Some(&mut state.maps), at, Part::Leaf)?;
            let block = self.dir_bytes(leaf);
            let count = leaf::table(&layout, block).count;
            if count < layout.leaf_capacity() || leaf::stale(&layout, block) > 0 {
                insert_hash(&layout, &mut self.held(leaf), new);
                if !path.nodes.is_empty() {
                    self.note_leaf(dir, state, at, Some(new.hash))?;
                }
                let block = self.dir_bytes(leaf);
                let last = leaf::table(&layout, block).last_hash(block);
                return self.set_hash_above(dir, state, &path.nodes, last);
            }
            self.split_once(dir, state, &path)?;
            let mut view = View::new(self, dir);
            view.maps = Some(&mut state.maps);
            path = view.descend(new.hash, |_, _| (), |_, _, _| true)?.0;
        }
        Err(Corruption::new("directory node", "no room after many splits")
            .of_inode(dir.ino().0)
            .into())
    }

    /// Adds an empty data block to a directory, and brings the size up to it.
    pub(super) fn new_data_block(
        &mut self,
        dir: &mut Handle,
        maps: Option<&mut super::state::Maps>,
        number: u32,
    ) -> Result<DirBuf> {
        let layout = self.dir_layout();
        if u64::from(number) >= layout.data_blocks_max() {
            return Err(Error::NoSpace);
        }
        let buf = self.dir_new(dir, maps, layout.data_at(number), NewBlock::Data(magic::DATA))?;
        data::clear(&layout, &mut self.held(buf));
        let end = (u64::from(number) + 1) << layout.size_log;
        if dir.inode.size() < end {
            dir.inode.set_size(end);
        }
        Ok(buf)
    }

    /// Adds an empty data block and enters it into the index of free space.
    fn append_data(&mut self, dir: &mut Handle, state: &mut DirState) -> Result<(u32, DirBuf)> {
        let layout = self.dir_layout();
        state.set_changed();
        let number = state.data.take();
        let buf = self.new_data_block(dir, Some(&mut state.maps), number)?;
        let (at, slot) = layout.free_at(number);
        let mut view = View::new(self, dir);
        view.maps = Some(&mut state.maps);
        let index = if view.with_if(at, Part::Free, |_| ())?.is_some() {
            self.dir_buffer(dir, Some(&mut state.maps), at, Part::Free)?
        } else {
            let new = NewBlock::Free(magic::FREE);
            let index = self.dir_new(dir, Some(&mut state.maps), at, new)?;
            let first = number - slot as u32;
            let mut held = self.held(index);
            free::set_header(&layout, &mut held, Header { first, valid: 0, used: 0 });
            index
        };
        free::enter(&layout, &mut self.held(index), slot, layout.data_room() as u16);
        state.note_best(&layout, number, self.dir_bytes(index));
        Ok((number, buf))
    }

    /// Notes the longest unused range of a data block in the index of free space.
    fn set_best(
        &mut self,
        dir: &Handle,
        state: &mut DirState,
        number: u32,
        best: usize,
    ) -> Result<()> {
        let layout = self.dir_layout();
        let (index, slot) = self.free_slot(dir, state, number)?;
        free::set_slot(&layout, &mut self.held(index), slot, best as u16);
        state.note_best(&layout, number, self.dir_bytes(index));
        Ok(())
    }

    /// The block of the index of free space that describes a data block, and its slot there.
    fn free_slot(
        &mut self,
        dir: &Handle,
        state: &mut DirState,
        number: u32,
    ) -> Result<(DirBuf, usize)> {
        let layout = self.dir_layout();
        let (at, slot) = layout.free_at(number);
        let index = self.dir_buffer(dir, Some(&mut state.maps), at, Part::Free)?;
        let block = self.dir_bytes(index);
        let is_there = slot < free::slots(&layout, block).len()
            && free::slot(&layout, block, slot) != free::NO_BLOCK;
        if is_there {
            return Ok((index, slot));
        }
        let problem = format!("it does not describe data block {number}");
        Err(dir.corrupt("directory free index", problem))
    }

    /// Removes an entry.
    pub(super) fn remove_node(
        &mut self,
        dir: &mut Handle,
        state: &mut DirState,
        name: &[u8],
        hint: Option<&Spot>,
    ) -> Result<Found> {
        let layout = self.dir_layout();
        let hash = layout.hash(name);
        let (spot, path) = match hint {
            Some(spot) if self.is_still_there(dir, state, spot, hash)? => (*spot, None),
            _ => {
                let mut view = View::new(self, dir);
                view.maps = Some(&mut state.maps);
                view.buffers = Some(&state.buffers);
                let search = view.search(name)?;
                (search.spot.ok_or(Error::NotFound)?, Some(search.path))
            }
        };
        let best = self.release_entry(dir, Some(&mut state.maps), &spot, name)?;
        if best == layout.data_room() && spot.number != 0 {
            self.drop_data_block(dir, state, spot.number)?;
        } else {
            let (index, slot) = self.free_slot(dir, state, spot.number)?;
            if usize::from(free::slot(&layout, self.dir_bytes(index), slot)) != best {
                self.set_best(dir, state, spot.number, best)?;
            }
        }
        if spot.is_waiting {
            let address = layout.address(spot.number, spot.offset);
            self.remove_waiting(dir, state, spot.leaf, LeafEntry { hash, address })?;
        } else {
            self.remove_hash(dir, state, path, (&spot, hash))?;
        }
        if self.try_node_to_leaf(dir)? {
            state.set_changed();
            state.set_over();
        }
        Ok(spot.found)
    }

    /// Gives an empty data block back.
    fn drop_data_block(
        &mut self,
        dir: &mut Handle,
        state: &mut DirState,
        number: u32,
    ) -> Result<()> {
        let layout = self.dir_layout();
        state.set_changed();
        let (index, slot) = self.free_slot(dir, state, number)?;
        self.dir_drop(dir, Some(&mut state.maps), layout.data_at(number))?;
        state.data.give_back(number);
        let is_unused = free::remove(&layout, &mut self.held(index), slot);
        state.note_best(&layout, number, self.dir_bytes(index));
        if (u64::from(number) + 1) << layout.size_log == dir.inode.size() {
            let end = self.data_end(dir, state, number)?;
            dir.inode.set_size(u64::from(end) << layout.size_log);
        }
        if is_unused {
            self.dir_drop(dir, Some(&mut state.maps), layout.free_at(number).0)?;
        }
        Ok(())
    }

    /// One past the last data block before `number`, which was the last.
    fn data_end(&mut self, dir: &Handle, state: &mut DirState, number: u32) -> Result<u32> {
        let layout = self.dir_layout();
        let capacity = layout.free_capacity() as u32;
        let mut first = number - number % capacity;
        loop {
            let (at, _) = layout.free_at(first);
            let mut view = View::new(self, dir);
            view.maps = Some(&mut state.maps);
            let header = view.with_if(at, Part::Free, |block| free::header(&layout, block))?;
            if let Some(header) = header.filter(|header| header.used > 0) {
                return Ok(first + header.valid);
            }
            let Some(before) = first.checked_sub(capacity) else {
                return Err(dir.corrupt("directory free index", "it describes no data block"));
            };
            first = before;
        }
    }

    /// Makes the nodes above a block name its highest hash.
    pub(super) fn set_hash_above(
        &mut self,
        dir: &Handle,
        state: &mut DirState,
        nodes: &[(FileBlock, usize)],
        hash: u32,
    ) -> Result<()> {
        let layout = self.dir_layout();
        for &(at, index) in nodes.iter().rev() {
            let node = self.dir_buffer(dir, Some(&mut state.maps), at, Part::Leaf)?;
            let block = self.dir_bytes(node);
            let table = leaf::table(&layout, block);
            let entry = table.entry(block, index);
            if entry.hash == hash {
                break;
            }
            leaf::set_entry(&mut self.held(node), &table, index, LeafEntry { hash, ..entry });
            if index + 1 < table.count {
                break;
            }
        }
        Ok(())
    }
}

/// The number of a block of the hash index.
pub(super) fn leaf_number(layout: &Layout, at: FileBlock) -> u32 {
    ((at.0 - layout.leaf_first().0) / u64::from(layout.blocks())) as u32
}

/// The logical block of a block of the hash index, by its number there.
pub(super) fn leaf_at(layout: &Layout, number: u32) -> FileBlock {
    layout.leaf_first().plus(u64::from(number) * u64::from(layout.blocks()))
}
