//! Data blocks of a directory of node form, and their values in the free-space index.

use operations::Outcome;
use vfs::Error;

use super::change::{DirBufferId, DirChange, NewBlock};
use super::node::NodeChange;
use crate::format::dir::data;
use crate::format::dir::free::{self, FreeHeader};
use crate::format::dir::{DirBlockKind, magic};

impl DirChange<'_, '_> {
    /// Adds an empty data block, and extends the size to include it.
    pub(super) fn new_data_block(&mut self, number: u32) -> Outcome<DirBufferId> {
        let layout = self.layout;
        if u64::from(number) >= layout.data_blocks_max() {
            return Err(Error::NoSpace.into());
        }
        let buf = self.create(layout.data_at(number), NewBlock::Data(magic::DATA))?;
        data::clear(&layout, &mut self.held(buf));
        let end = (u64::from(number) + 1) << layout.size_log;
        if self.handle.inode.size() < end {
            self.handle.inode.set_size(end);
        }
        Ok(buf)
    }
}

impl NodeChange<'_, '_> {
    /// Adds an empty data block and enters it into the free-space index.
    pub(super) fn append_data(&mut self) -> Outcome<(u32, DirBufferId)> {
        let layout = self.dir.layout;
        self.state.set_changed();
        let number = self.state.data.take();
        let buf = self.dir.new_data_block(number)?;
        let (at, slot) = layout.free_at(number);
        let index = if self.view().with_if(at, DirBlockKind::Free, |_| ())?.is_some() {
            self.dir.buffer(at, DirBlockKind::Free)?
        } else {
            let index = self.dir.create(at, NewBlock::Free(magic::FREE))?;
            let first = number - slot as u32;
            let mut held = self.dir.held(index);
            free::set_header(&layout, &mut held, FreeHeader { first, valid: 0, used: 0 });
            index
        };
        free::enter(&layout, &mut self.dir.held(index), slot, layout.data_room() as u16);
        self.note_best(number, index);
        Ok((number, buf))
    }

    /// Stores the longest unused range of a data block in the free-space index.
    pub(super) fn set_best(&mut self, number: u32, best: usize) -> Outcome<()> {
        let place = self.free_slot(number)?;
        self.set_slot(number, place, best);
        Ok(())
    }

    /// Like [`NodeChange::set_best`], with the place in the free-space index.
    pub(super) fn set_slot(
        &mut self,
        number: u32,
        (index, slot): (DirBufferId, usize),
        best: usize,
    ) {
        let layout = self.dir.layout;
        free::set_slot(&layout, &mut self.dir.held(index), slot, best as u16);
        self.note_best(number, index);
    }

    /// Updates the state with the value of data block `number` in free-space index block `index`.
    fn note_best(&mut self, number: u32, index: DirBufferId) {
        self.state.note_best(&self.dir.layout, number, self.dir.bytes(index));
    }

    /// Returns the block of the free-space index that describes a data block, and its slot there.
    pub(super) fn free_slot(&mut self, number: u32) -> Outcome<(DirBufferId, usize)> {
        let layout = self.dir.layout;
        let (at, slot) = layout.free_at(number);
        let index = self.dir.buffer(at, DirBlockKind::Free)?;
        let block = self.dir.bytes(index);
        let is_there = slot < free::slots(&layout, block).len()
            && free::slot(&layout, block, slot) != free::NO_BLOCK;
        if is_there {
            return Ok((index, slot));
        }
        let problem = format!("it does not describe data block {number}");
        Err(self.dir.corrupt("directory free index", problem))
    }

    /// Frees an empty data block.
    pub(super) fn free_data_block(&mut self, number: u32) -> Outcome<()> {
        let layout = self.dir.layout;
        self.state.set_changed();
        let (index, slot) = self.free_slot(number)?;
        self.dir.free(layout.data_at(number))?;
        self.state.data.give_back(number);
        let is_unused = free::remove(&layout, &mut self.dir.held(index), slot);
        self.note_best(number, index);
        if (u64::from(number) + 1) << layout.size_log == self.dir.handle.inode.size() {
            let end = self.data_end(number)?;
            self.dir.handle.inode.set_size(u64::from(end) << layout.size_log);
        }
        if is_unused {
            self.dir.free(layout.free_at(number).0)?;
        }
        Ok(())
    }

    /// Returns one past the last data block before `number`, which was the last.
    fn data_end(&mut self, number: u32) -> Outcome<u32> {
        let layout = self.dir.layout;
        let capacity = layout.free_capacity() as u32;
        let mut first = number - number % capacity;
        loop {
            let (at, _) = layout.free_at(first);
            let look = |block: &[u8]| free::header(&layout, block);
            let header = self.view().with_if(at, DirBlockKind::Free, look)?;
            if let Some(header) = header.filter(|header| header.used > 0) {
                return Ok(first + header.valid);
            }
            let Some(before) = first.checked_sub(capacity) else {
                return Err(self.dir.corrupt("directory free index", "it describes no data block"));
            };
            first = before;
        }
    }
}
