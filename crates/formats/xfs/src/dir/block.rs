//! Directories of block form: one block, with its hash index at the end.

use operations::Outcome;
use vfs::Error;

use super::change::{DirChange, NewBlock};
use super::{Entry, FoundInode};
use crate::format::address::FileBlock;
use crate::format::dir::data::{self, Free};
use crate::format::dir::leaf::{self, LeafEntry};
use crate::format::dir::{DirBlockKind, DirLayout, magic};
use crate::format::edit::Edit;

const BLOCK: FileBlock = FileBlock(0);

/// Way to make room for one more hash in the index of a directory block.
enum BlockRoom {
    None,
    /// Replace a stale entry of the index.
    OverStale,
    /// Grow the index into the unused range before it.
    Grow(Free),
}

fn room(layout: &DirLayout, block: &[u8], size: usize) -> BlockRoom {
    let bests = data::bests(layout, block);
    if leaf::block_stale(layout, block) > 0 {
        let fits = bests[0].len >= size;
        return if fits { BlockRoom::OverStale } else { BlockRoom::None };
    }
    let table = leaf::block_table(layout, block);
    let Some(last) = data::unused_before(layout, block, table.start) else {
        return BlockRoom::None;
    };
    let fits = |free: &Free| {
        let taken = if free.offset == last.offset { leaf::ENTRY_SIZE } else { 0 };
        free.len >= size + taken
    };
    if bests.iter().any(fits) { BlockRoom::Grow(last) } else { BlockRoom::None }
}

impl DirChange<'_, '_> {
    /// Adds an entry to a block. Returns false if there is no room.
    pub(super) fn add_block(&mut self, entry: Entry<'_>) -> Outcome<bool> {
        let layout = self.layout;
        if self.view().find_in_block(entry.name)?.is_some() {
            return Err(Error::Exists.into());
        }
        let buf = self.buffer(BLOCK, DirBlockKind::Data)?;
        let mut held = self.held(buf);
        let hash = layout.hash(entry.name);
        let table = leaf::block_table(&layout, held.bytes());
        let stale = leaf::block_stale(&layout, held.bytes());
        let index = table.lower_bound(held.bytes(), hash);
        let size = layout.entry_size(entry.name.len());
        // The hash is inserted before the entry is placed, so the address is not known yet.
        let placeholder = LeafEntry { hash, address: u32::MAX };
        let room = room(&layout, held.bytes(), size);
        match room {
            BlockRoom::None => return Ok(false),
            BlockRoom::OverStale => {
                leaf::insert_over_stale(&mut held, &table, index, placeholder);
                leaf::set_block_tail(&layout, &mut held, table.count, stale.saturating_sub(1));
            }
            BlockRoom::Grow(last) => {
                leaf::insert_downward(&mut held, &table, index, placeholder);
                leaf::set_block_tail(&layout, &mut held, table.count + 1, stale);
                data::take_end(&layout, &mut held, last, leaf::ENTRY_SIZE);
            }
        }
        let offset = data::insert(&layout, &mut held, &entry.into());
        let table = leaf::block_table(&layout, held.bytes());
        let first = table.lower_bound(held.bytes(), hash);
        let index = (first..table.count)
            .find(|i| table.entry(held.bytes(), *i).address == placeholder.address);
        let (Some(offset), Some(index)) = (offset, index) else {
            return Err(self.corrupt("directory block", "its unused ranges differ from the list"));
        };
        let address = layout.address(0, offset);
        leaf::set_entry(&mut held, &table, index, LeafEntry { hash, address });
        Ok(true)
    }

    /// Removes an entry from a block.
    pub(super) fn remove_block(&mut self, name: &[u8]) -> Outcome<FoundInode> {
        let layout = self.layout;
        let spot = self.view().find_in_block(name)?.ok_or(Error::NotFound)?;
        let buf = self.buffer(BLOCK, DirBlockKind::Data)?;
        let mut held = self.held(buf);
        let table = leaf::block_table(&layout, held.bytes());
        let stale = leaf::block_stale(&layout, held.bytes());
        leaf::set_stale(&mut held, &table, spot.index);
        leaf::set_block_tail(&layout, &mut held, table.count, stale + 1);
        let range = Free { offset: spot.offset, len: layout.entry_size(name.len()) };
        data::release(&layout, &mut held, range, table.start);
        self.try_block_to_short()?;
        Ok(spot.found)
    }

    /// Converts a directory from block to leaf form: moves its hash index into a leaf.
    pub(super) fn block_to_leaf(&mut self) -> Outcome<()> {
        let layout = self.layout;
        let new = self.create(layout.leaf_first(), NewBlock::Leaf(magic::LEAF1))?;
        let buf = self.buffer(BLOCK, DirBlockKind::Data)?;
        let block = self.bytes(buf);
        let table = leaf::block_table(&layout, block);
        let index: Vec<LeafEntry> = leaf::live(block, &table).collect();

        let mut held = self.held(buf);
        data::set_block_form(&layout, &mut held, false);
        let range = Free { offset: table.start, len: layout.size() - table.start };
        data::release(&layout, &mut held, range, layout.size());
        let best = data::best_len(&layout, held.bytes());

        let mut held = self.held(new);
        leaf::set_counts(&layout, &mut held, index.len(), 0);
        let table = leaf::table(&layout, held.bytes());
        for (i, entry) in index.iter().enumerate() {
            leaf::set_entry(&mut held, &table, i, *entry);
        }
        leaf::set_bests_count(&layout, &mut held, 1);
        held.set16(leaf::bests_start(&layout, 1), best as u16);
        Ok(())
    }

    /// Converts a directory from leaf to block form, if the leaf's entries fit into its only data block.
    pub(super) fn try_leaf_to_block(&mut self) -> Outcome<()> {
        let layout = self.layout;
        let old = self.buffer(layout.leaf_first(), DirBlockKind::Leaf)?;
        let buf = self.buffer(BLOCK, DirBlockKind::Data)?;
        let leaf_bytes = self.bytes(old);
        let table = leaf::table(&layout, leaf_bytes);
        let count = table.count.saturating_sub(leaf::stale(&layout, leaf_bytes));
        let need = count * leaf::ENTRY_SIZE + leaf::TAIL_SIZE;
        let last = data::unused_before(&layout, self.bytes(buf), layout.size());
        let Some(last) = last.filter(|last| last.len >= need) else { return Ok(()) };
        let index: Vec<LeafEntry> = leaf::live(leaf_bytes, &table).collect();

        let mut held = self.held(buf);
        data::set_block_form(&layout, &mut held, true);
        leaf::set_block_tail(&layout, &mut held, index.len(), 0);
        let table = leaf::block_table(&layout, held.bytes());
        for (i, entry) in index.iter().enumerate() {
            leaf::set_entry(&mut held, &table, i, *entry);
        }
        data::take_end(&layout, &mut held, last, layout.size() - table.start);
        self.free(layout.leaf_first())?;
        self.try_block_to_short()
    }
}
