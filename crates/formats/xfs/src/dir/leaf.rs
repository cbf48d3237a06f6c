//! Directories of leaf form: several data blocks, and one leaf with the hash index and, at its end, the longest unused
//! range of each data block (the bests array).

use operations::Outcome;
use vfs::Error;

use super::change::{DirChange, NewBlock};
use super::find::Spot;
use super::{Entry, FoundInode};
use crate::format::bytes::be16;
use crate::format::dir::data::{self, Free};
use crate::format::dir::free::{self, NO_BLOCK};
use crate::format::dir::leaf::{self, LeafEntry, LeafKind};
use crate::format::dir::{DirBlockKind, DirLayout, magic};
use crate::format::edit::Edit;

/// Sets a value of the bests array of a leaf. Extends the array if the block is the one after its last.
fn set_best(layout: &DirLayout, held: &mut impl Edit, number: usize, best: u16) {
    let count = leaf::bests_count(layout, held.bytes());
    if number >= count {
        let old = leaf::bests_start(layout, count);
        let bytes = held.edit(old - 2..layout.size() - 4);
        bytes.copy_within(2.., 0);
        leaf::set_bests_count(layout, held, count + 1);
    }
    let count = count.max(number + 1);
    held.set16(leaf::bests_start(layout, count) + number * 2, best);
}

/// Truncates the bests array of a leaf to `count` values.
fn cut_bests(layout: &DirLayout, held: &mut impl Edit, count: usize) {
    let old = leaf::bests_count(layout, held.bytes());
    let from = leaf::bests_start(layout, old);
    let kept = held.bytes()[from..from + count * 2].to_vec();
    let to = leaf::bests_start(layout, count);
    held.edit(to..to + kept.len()).copy_from_slice(&kept);
    leaf::set_bests_count(layout, held, count);
}

fn best(layout: &DirLayout, block: &[u8], number: usize) -> u16 {
    let count = leaf::bests_count(layout, block);
    if number < count {
        be16(block, leaf::bests_start(layout, count) + number * 2)
    } else {
        NO_BLOCK
    }
}

/// Returns the data block for a new entry, and whether it must be created.
fn choose(layout: &DirLayout, block: &[u8], size: usize) -> (usize, bool) {
    let count = leaf::bests_count(layout, block);
    let has_room = |number: &usize| {
        let best = best(layout, block, *number);
        best != NO_BLOCK && usize::from(best) >= size
    };
    let is_hole = |number: &usize| best(layout, block, *number) == NO_BLOCK;
    match (0..count).find(has_room) {
        Some(number) => (number, false),
        None => ((0..count).find(is_hole).unwrap_or(count), true),
    }
}

impl DirChange<'_, '_> {
    /// Adds an entry to a directory of leaf form. Returns false if the leaf has no room for its hash.
    pub(super) fn add_leaf(&mut self, entry: Entry<'_>) -> Outcome<bool> {
        let layout = self.layout;
        let search = self.view().search(entry.name)?;
        if search.spot.is_some() {
            return Err(Error::Exists.into());
        }
        self.check_bests_count()?;
        let root = self.buffer(layout.leaf_first(), DirBlockKind::Leaf)?;
        let block = self.bytes(root);
        let (number, is_new) = choose(&layout, block, layout.entry_size(entry.name.len()));
        let bests = leaf::bests_count(&layout, block).max(number + 1);
        let (count, stale) = (leaf::table(&layout, block).count, leaf::stale(&layout, block));
        let with_one = count + usize::from(stale == 0);
        if leaf::single_size(&layout, with_one, bests) > layout.size() {
            if leaf::single_size(&layout, count - stale.min(count) + 1, bests) > layout.size() {
                return Ok(false);
            }
            leaf::compact(&layout, &mut self.held(root));
        }
        let number = number as u32;
        let offset = self.add_to_data(entry, number, is_new)?;
        let buf = self.buffer(layout.data_at(number), DirBlockKind::Data)?;
        let best_len = data::best_len(&layout, self.bytes(buf));

        let mut held = self.held(root);
        set_best(&layout, &mut held, number as usize, best_len as u16);
        let new = LeafEntry { hash: search.hash, address: layout.address(number, offset) };
        insert_hash(&layout, &mut held, new);
        Ok(true)
    }

    /// Writes an entry into a data block, which is new or has room for it. Returns the entry's offset.
    fn add_to_data(&mut self, entry: Entry<'_>, number: u32, is_new: bool) -> Outcome<usize> {
        let layout = self.layout;
        let buf = if is_new {
            self.new_data_block(number)?
        } else {
            self.buffer(layout.data_at(number), DirBlockKind::Data)?
        };
        let offset = data::insert(&layout, &mut self.held(buf), &entry.into());
        let problem = || format!("free space of data block {number}");
        offset.ok_or_else(|| self.corrupt("directory leaf", problem()))
    }

    /// Checks that the bests array describes as many data blocks as the size implies.
    fn check_bests_count(&mut self) -> Outcome<()> {
        let layout = self.layout;
        let blocks = self.view().data_blocks()? as usize;
        let root = self.buffer(layout.leaf_first(), DirBlockKind::Leaf)?;
        let count = leaf::bests_count(&layout, self.bytes(root));
        if count == blocks {
            return Ok(());
        }
        Err(self.corrupt("directory leaf", format!("it describes {count} of {blocks} data blocks")))
    }

    /// Removes an entry from a directory of leaf form.
    pub(super) fn remove_leaf(&mut self, name: &[u8]) -> Outcome<FoundInode> {
        let layout = self.layout;
        let spot = self.view().search(name)?.spot.ok_or(Error::NotFound)?;
        self.check_bests_count()?;
        if spot.number >= self.view().data_blocks()? {
            return Err(
                self.corrupt("directory leaf", "an entry in a data block past the last one")
            );
        }
        let root = self.buffer(layout.leaf_first(), DirBlockKind::Leaf)?;
        let mut held = self.held(root);
        let table = leaf::table(&layout, held.bytes());
        let stale = leaf::stale(&layout, held.bytes());
        leaf::set_stale(&mut held, &table, spot.index);
        leaf::set_counts(&layout, &mut held, table.count, stale + 1);
        let best_len = self.release_entry(&spot, name)?;
        let number = spot.number as usize;
        let mut held = self.held(root);
        if best_len < layout.data_room() || number == 0 {
            set_best(&layout, &mut held, number, best_len as u16);
        } else {
            set_best(&layout, &mut held, number, NO_BLOCK);
            let count = leaf::bests_count(&layout, held.bytes());
            let last = (0..count).rfind(|i| best(&layout, held.bytes(), *i) != NO_BLOCK);
            let left = last.map_or(0, |last| last + 1);
            if left < count {
                cut_bests(&layout, &mut held, left);
            }
            self.handle.inode.set_size((left as u64) << layout.size_log);
            self.free(layout.data_at(spot.number))?;
        }
        if self.handle.inode.size() == layout.size() as u64 {
            self.try_leaf_to_block()?;
        }
        Ok(spot.found)
    }

    /// Marks the bytes of an entry unused. Returns the longest unused range of its block afterwards.
    pub(super) fn release_entry(&mut self, spot: &Spot, name: &[u8]) -> Outcome<usize> {
        let layout = self.layout;
        let buf = self.buffer(layout.data_at(spot.number), DirBlockKind::Data)?;
        let range = Free { offset: spot.offset, len: layout.entry_size(name.len()) };
        let mut held = self.held(buf);
        data::release(&layout, &mut held, range, layout.size());
        Ok(data::best_len(&layout, held.bytes()))
    }

    /// Converts a directory from leaf to node form: moves the bests array into a free-space index.
    pub(super) fn leaf_to_node(&mut self) -> Outcome<()> {
        let layout = self.layout;
        let root = self.buffer(layout.leaf_first(), DirBlockKind::Leaf)?;
        let block = self.bytes(root);
        let count = leaf::bests_count(&layout, block);
        let bests: Vec<u16> = (0..count).map(|i| best(&layout, block, i)).collect();
        let new = self.create(layout.free_first(), NewBlock::Free(magic::FREE))?;
        let mut held = self.held(new);
        for (slot, best) in bests.into_iter().enumerate().filter(|(_, best)| *best != NO_BLOCK) {
            free::enter(&layout, &mut held, slot, best);
        }
        leaf::set_kind(&layout, &mut self.held(root), LeafKind::Many);
        Ok(())
    }

    /// Converts a directory from node to leaf form, if it has one leaf with room for the free-space index. Otherwise
    /// returns false without a change.
    pub(super) fn try_node_to_leaf(&mut self) -> Outcome<bool> {
        let layout = self.layout;
        let blocks = self.view().data_blocks()? as usize;
        let root = self.buffer(layout.leaf_first(), DirBlockKind::Leaf)?;
        let block = self.bytes(root);
        let count = leaf::table(&layout, block).count;
        let live = count.saturating_sub(leaf::stale(&layout, block));
        let is_leaf = leaf::kind(&layout, block) == Some(LeafKind::Many);
        if !is_leaf
            || blocks > layout.free_capacity()
            || leaf::single_size(&layout, live, blocks) > layout.size()
        {
            return Ok(false);
        }
        let index = self.buffer(layout.free_first(), DirBlockKind::Free)?;
        let slots = free::slots(&layout, self.bytes(index)).to_vec();
        if slots.len() != blocks {
            let problem = format!("it describes {} of {blocks} data blocks", slots.len());
            return Err(self.corrupt("directory free index", problem));
        }
        let mut held = self.held(root);
        leaf::compact(&layout, &mut held);
        leaf::set_kind(&layout, &mut held, LeafKind::Single);
        let start = leaf::bests_start(&layout, blocks);
        held.edit(start..start + blocks * 2).copy_from_slice(slots.as_flattened());
        leaf::set_bests_count(&layout, &mut held, blocks);
        self.free(layout.free_first())?;
        if blocks == 1 {
            self.try_leaf_to_block()?;
        }
        Ok(true)
    }
}

/// Puts a hash into a leaf that has room for it.
pub(super) fn insert_hash(layout: &DirLayout, held: &mut impl Edit, new: LeafEntry) {
    let table = leaf::table(layout, held.bytes());
    let stale = leaf::stale(layout, held.bytes());
    let index = table.lower_bound(held.bytes(), new.hash);
    if stale > 0 && leaf::insert_over_stale(held, &table, index, new) {
        leaf::set_counts(layout, held, table.count, stale - 1);
    } else {
        leaf::insert_at(held, &table, index, new);
        leaf::set_counts(layout, held, table.count + 1, stale);
    }
}
