//! Directories of node form: any number of data blocks and leaves, and a free-space index.

use operations::Outcome;
use vfs::Error;

use super::change::{DirBufferId, DirChange};
use super::find::{IndexPath, Spot};
use super::leaf::insert_hash;
use super::state::NodeState;
use super::view::View;
use super::{Entry, FoundInode};
use crate::format::address::FileBlock;
use crate::format::dir::DirBlockKind;
use crate::format::dir::data;
use crate::format::dir::free;
use crate::format::dir::leaf::{self, LeafEntry};
use crate::format::edit::Edit;
use crate::op::Op;

/// Maximum number of rounds of making room in the hash index for one entry. Each round splits one block or adds a
/// level, and a path has at most five blocks.
const ROUNDS_MAX: usize = 16;

/// A directory of node form that an operation changes, and its state in memory.
pub(super) struct NodeChange<'o, 'a> {
    pub(super) dir: DirChange<'o, 'a>,
    pub(super) state: &'o mut NodeState,
}

impl<'a> NodeChange<'_, 'a> {
    /// Returns a view of the directory that reads through the operation and includes names that are only in the insert
    /// buffer.
    pub(super) fn view(&mut self) -> View<'_, Op<'a>> {
        View { insert_buffer: Some(&self.state.insert_buffer), ..self.dir.view() }
    }

    /// Holds a block of the hash index.
    pub(super) fn index_buffer(&mut self, at: FileBlock) -> Outcome<DirBufferId> {
        self.dir.buffer(at, DirBlockKind::Leaf)
    }

    /// Adds an entry. Fails with `Exists` if the name exists.
    pub(super) fn add(&mut self, entry: Entry<'_>) -> Outcome<()> {
        let layout = self.dir.layout;
        let search = self.view().search(entry.name)?;
        if search.spot.is_some() {
            return Err(Error::Exists.into());
        }
        let size = layout.entry_size(entry.name.len());
        let (number, buf) = match self.find_room(size)? {
            Some(number) => (number, self.dir.buffer(layout.data_at(number), DirBlockKind::Data)?),
            None => self.append_data()?,
        };
        let mut held = self.dir.held(buf);
        let before = data::best_len(&layout, held.bytes());
        let Some(offset) = data::insert(&layout, &mut held, &entry.into()) else {
            let problem = format!("free space of data block {number}");
            return Err(self.dir.corrupt("directory free index", problem));
        };
        let best = data::best_len(&layout, held.bytes());
        if best != before {
            self.set_best(number, best)?;
        }
        let new = LeafEntry { hash: search.hash, address: layout.address(number, offset) };
        // The filter shows that the leaf does not have the hash, so the leaf need not be read.
        if search.is_absent && self.add_buffered(search.path.leaf, new)? {
            return Ok(());
        }
        self.add_hash(search.path, new)
    }

    /// Adds a hash to its leaf.
    fn add_hash(&mut self, mut path: IndexPath, new: LeafEntry) -> Outcome<()> {
        let layout = self.dir.layout;
        for _ in 0..ROUNDS_MAX {
            let at = path.leaf;
            self.merge_buffered(at, None)?;
            let leaf = self.index_buffer(at)?;
            let block = self.dir.bytes(leaf);
            let count = leaf::table(&layout, block).count;
            if count < layout.leaf_capacity() || leaf::stale(&layout, block) > 0 {
                insert_hash(&layout, &mut self.dir.held(leaf), new);
                if !path.nodes.is_empty() {
                    self.note_leaf(at, Some(new.hash))?;
                }
                let block = self.dir.bytes(leaf);
                let last = leaf::table(&layout, block).last_hash(block);
                return self.set_hash_above(&path.nodes, last);
            }
            self.split_once(&path)?;
            path = self.view().descend(new.hash, |_, _| (), |_, _, _| true)?.0;
        }
        Err(self.dir.corrupt("directory node", "no space after many splits"))
    }

    /// Removes an entry and returns the inode it named.
    pub(super) fn remove(&mut self, name: &[u8], hint: Option<&Spot>) -> Outcome<FoundInode> {
        let layout = self.dir.layout;
        let (spot, path) = match hint {
            Some(spot) if self.is_still_there(spot)? => (*spot, None),
            _ => {
                let search = self.view().search(name)?;
                (search.spot.ok_or(Error::NotFound)?, Some(search.path))
            }
        };
        let best = self.dir.release_entry(&spot, name)?;
        if best == layout.data_room() && spot.number != 0 {
            self.free_data_block(spot.number)?;
        } else {
            let (index, slot) = self.free_slot(spot.number)?;
            if usize::from(free::slot(&layout, self.dir.bytes(index), slot)) != best {
                self.set_slot(spot.number, (index, slot), best);
            }
        }
        // Entries are buffered only for leaves below nodes.
        let may_fit_leaf = if spot.is_buffered {
            self.remove_buffered(spot.leaf, spot.entry(&layout))?;
            false
        } else {
            self.remove_hash(path, &spot)?
        };
        if may_fit_leaf && self.dir.try_node_to_leaf()? {
            self.state.set_changed();
            self.state.set_over();
        }
        Ok(spot.found)
    }

    /// Updates the highest hash of a block in the nodes above it.
    pub(super) fn set_hash_above(
        &mut self,
        nodes: &[(FileBlock, usize)],
        hash: u32,
    ) -> Outcome<()> {
        let layout = self.dir.layout;
        for &(at, index) in nodes.iter().rev() {
            let node = self.index_buffer(at)?;
            let block = self.dir.bytes(node);
            let table = leaf::table(&layout, block);
            let entry = table.entry(block, index);
            if entry.hash == hash {
                break;
            }
            leaf::set_entry(&mut self.dir.held(node), &table, index, LeafEntry { hash, ..entry });
            if index + 1 < table.count {
                break;
            }
        }
        Ok(())
    }
}
