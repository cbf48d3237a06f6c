//! The state that is kept in memory of a node directory that was changed: where its blocks are, which
//! logical blocks are holes, what finds room for an entry, and the insert buffer. All but the insert buffer
//! can be read from the directory.
//!
//! A failed operation takes its changes of the state back. If more has changed than room, the state is read
//! again before it is used.

use operation::Outcome;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use vfs::{Ino, Result};

use super::change::DirChange;
use super::free::{Bests, FreeIndexStrategy};
use super::insert_buffer::InsertBuffer;
use super::store::Reported;
use super::view::View;
use crate::Xfs;
use crate::format::address::{Block, FileBlock};
use crate::format::dir::Layout;
use crate::format::inode::Fork;
use crate::map::{self, Place};
use crate::op::source::Source;

/// Where a directory's blocks are on the device, as far as it is known: data blocks, blocks of the hash index
/// and of the free index, by their numbers. 0 stands for unknown.
#[derive(Default)]
pub(super) struct Maps([Vec<u64>; 3]);

impl Maps {
    fn row(layout: &Layout, at: FileBlock) -> (usize, usize) {
        let (row, first) = if at < layout.leaf_first() {
            (0, FileBlock(0))
        } else if at < layout.free_first() {
            (1, layout.leaf_first())
        } else {
            (2, layout.free_first())
        };
        (row, ((at.0 - first.0) / u64::from(layout.blocks())) as usize)
    }

    pub(super) fn get(&self, layout: &Layout, at: FileBlock) -> Option<Block> {
        let (row, index) = Self::row(layout, at);
        self.0[row].get(index).copied().filter(|block| *block != 0).map(Block)
    }

    /// Notes where a block is, unless it lies further out than the directory has blocks: that is not worth
    /// the memory.
    pub(super) fn set(&mut self, layout: &Layout, at: FileBlock, block: Block, blocks: u64) {
        let (row, index) = Self::row(layout, at);
        if layout.blocks() > 1 || index as u64 > blocks {
            return;
        }
        let row = &mut self.0[row];
        if index >= row.len() {
            row.resize(index + 1, 0);
        }
        row[index] = block.0;
    }

    pub(super) fn clear(&mut self, layout: &Layout, at: FileBlock) {
        let (row, index) = Self::row(layout, at);
        if let Some(block) = self.0[row].get_mut(index) {
            *block = 0;
        }
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|row| row.capacity() * 8).sum()
    }
}

/// Which numbers of directory blocks are taken in one part of a directory's space.
#[derive(Default)]
pub(super) struct Numbers {
    /// All numbers from here on are holes.
    end: u32,
    /// Runs of holes before it: first number and length.
    holes: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Numbers {
    /// Takes the lowest number that is a hole, and returns it.
    pub(super) fn take(&mut self) -> u32 {
        let Some(Reverse((number, len))) = self.holes.pop() else {
            self.end += 1;
            return self.end - 1;
        };
        if len > 1 {
            self.holes.push(Reverse((number + 1, len - 1)));
        }
        number
    }

    /// About how many numbers are taken: some holes are counted.
    pub(super) fn count(&self) -> u32 {
        self.end.saturating_sub(self.holes.len() as u32)
    }

    /// Makes a number a hole again.
    pub(super) fn give_back(&mut self, number: u32) {
        if number + 1 == self.end {
            self.end = number;
        } else {
            self.holes.push(Reverse((number, 1)));
        }
    }

    /// Reads which numbers of the range from `first` to `limit` are taken.
    fn read<S: Source>(
        view: &mut View<'_, S>,
        (first, limit): (FileBlock, FileBlock),
    ) -> Result<Self> {
        let blocks = u64::from(view.layout.blocks());
        let mut numbers = Self::default();
        let mut at = first;
        while at < limit {
            let run = map::run_at(view.source, view.dir, Fork::Data, at)?;
            let next = FileBlock(at.plus(run.len).0.min(limit.0));
            if run.place == Place::Hole {
                let from = (at.0 - first.0).div_ceil(blocks) as u32;
                let to = ((next.0 - first.0) / blocks) as u32;
                if next == limit {
                    numbers.end = from;
                } else if from < to {
                    numbers.holes.push(Reverse((from, to - from)));
                }
            } else if next == limit {
                numbers.end = (limit.0 - first.0).div_ceil(blocks) as u32;
            }
            at = next;
        }
        Ok(numbers)
    }
}

/// The state of a node directory.
pub(crate) struct DirState {
    pub(super) ino: Ino,
    pub(super) generation: u32,
    pub(super) maps: Maps,
    pub(super) nodes: NodeState,
}

/// The state of a node directory without its maps, which the forms without nodes can use too.
pub(super) struct NodeState {
    pub(super) data: Numbers,
    pub(super) leaves: Numbers,
    pub(super) bests: Bests,
    pub(super) insert_buffer: InsertBuffer,
    /// What the store was told of the insert buffer.
    pub(super) reported: Reported,
    /// Old values of `bests`.
    undo: Vec<(u32, u16)>,
    /// Whether more has changed than `undo` knows of.
    is_changed: bool,
    /// Whether the directory is of another form now.
    is_over: bool,
    /// Whether all but the insert buffer must be read again.
    is_unread: bool,
}

impl DirState {
    /// Bytes of memory, without those of the insert buffer.
    pub(super) fn bytes(&self) -> usize {
        self.maps.bytes() + self.nodes.bests.bytes() + self.nodes.data.holes.capacity() * 8
    }

    /// Whether the directory still has nodes.
    pub(super) fn is_valid(&self) -> bool {
        !self.nodes.is_over
    }

    /// Whether the whole state is as the directory is.
    pub(super) fn is_read(&self) -> bool {
        !self.nodes.is_unread
    }

    /// Whether the state may be dropped.
    pub(super) fn is_idle(&self) -> bool {
        self.nodes.is_idle()
    }

    /// Marks all but the insert buffer to be read again.
    pub(super) fn set_unread(&mut self) {
        self.nodes.is_unread = true;
    }

    /// Keeps the changes of an operation that commits. False if the state is of no use any more.
    pub(super) fn keep(&mut self) -> bool {
        self.nodes.keep();
        self.is_valid()
    }

    /// Takes back the changes of an operation that failed. False if the state is of no use any more.
    pub(super) fn roll_back(&mut self) -> bool {
        self.nodes.roll_back()
    }
}

impl NodeState {
    /// Notes a change that cannot be taken back.
    pub(super) fn set_changed(&mut self) {
        self.is_changed = true;
    }

    /// Notes that the directory has no nodes any more.
    pub(super) fn set_over(&mut self) {
        self.is_over = true;
    }

    /// Notes the longest unused range of a data block.
    pub(super) fn set_best(&mut self, number: u32, best: u16) {
        if let Some(old) = self.bests.set(number, best) {
            self.undo.push((number, old));
        }
    }

    fn is_idle(&self) -> bool {
        self.is_over || self.insert_buffer.is_empty()
    }

    fn keep(&mut self) {
        self.undo.clear();
        self.insert_buffer.keep();
        self.is_changed = false;
    }

    fn roll_back(&mut self) -> bool {
        while let Some((number, old)) = self.undo.pop() {
            self.bests.set(number, old);
        }
        self.insert_buffer.roll_back();
        self.is_over = false;
        if std::mem::take(&mut self.is_changed) {
            self.is_unread = true;
            return !self.is_idle();
        }
        true
    }
}

impl DirChange<'_, '_> {
    /// Takes the state of the directory out of the store, or reads it.
    pub(super) fn take_state(&mut self) -> Outcome<Box<DirState>> {
        let Some(mut state) = self.op.dirs.take(self.handle) else {
            return Ok(Box::new(self.read_state()?));
        };
        if state.nodes.is_unread
            && let Err(error) = self.read_again(&mut state)
        {
            self.op.dirs.give(state);
            return Err(error);
        }
        Ok(state)
    }

    /// Reads all of a state again but the insert buffer, which is nowhere else.
    fn read_again(&mut self, state: &mut DirState) -> Outcome<()> {
        let mut new = self.read_state()?;
        std::mem::swap(&mut new.nodes.insert_buffer, &mut state.nodes.insert_buffer);
        new.nodes.reported = state.nodes.reported;
        *state = new;
        Ok(())
    }

    fn read_state(&mut self) -> Outcome<DirState> {
        let (fs, layout) = (self.op.fs, self.layout);
        let data = (FileBlock(0), layout.leaf_first());
        let leaves = (layout.leaf_first(), layout.free_first());
        let mut maps = Maps::default();
        let mut view = View { maps: Some(&mut maps), ..self.view() };
        let nodes = NodeState {
            data: Numbers::read(&mut view, data)?,
            leaves: Numbers::read(&mut view, leaves)?,
            bests: Bests::read(fs.free_index, &mut view)?,
            insert_buffer: InsertBuffer::new(fs.dirs.buffer_size(&layout)),
            reported: Reported::default(),
            undo: Vec::new(),
            is_changed: false,
            is_over: false,
            is_unread: false,
        };
        let generation = self.handle.inode.generation();
        Ok(DirState { ino: self.ino(), generation, maps, nodes })
    }
}

impl Xfs {
    /// Drops the state of a directory whose inode becomes another one.
    pub(super) fn forget_dir(&self, ino: Ino) {
        self.dirs.forget(ino);
    }

    /// Chooses how large directories find room for new entries. Only the positions of entries on disk differ
    /// by it.
    pub fn set_free_index(&mut self, strategy: FreeIndexStrategy) {
        self.free_index = strategy;
        self.dirs.read_all_again();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_from_the_lowest_hole() {
        let mut numbers = Numbers { end: 7, ..Numbers::default() };
        numbers.holes.push(Reverse((2, 3)));
        numbers.give_back(0);
        assert_eq!([(); 6].map(|()| numbers.take()), [0, 2, 3, 4, 7, 8]);
        numbers.give_back(8);
        numbers.give_back(5);
        assert_eq!([(); 3].map(|()| numbers.take()), [5, 8, 9]);
    }
}
