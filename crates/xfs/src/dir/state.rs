//! What is kept in memory of node directories that were changed: where their blocks are, which logical
//! blocks are holes, what finds room for an entry, and names on their way into the hash index. But for
//! these, all of it can be read from the directory.
//!
//! A failed operation takes its changes back; where more has changed than room, the state is read again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use vfs::{Ino, Result};

use super::buffers::LeafBuffers;
use super::free::{Bests, FreeIndexStrategy};
use super::store::Reported;
use crate::Xfs;
use crate::bmap::{self, Place};
use crate::format::address::{Block, FileBlock};
use crate::format::dir::Layout;
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::op::Op;

/// Where a directory's blocks are on the device, as far as is known: data, leaves, free index.
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

    /// Notes where a block is. One that is further out than the directory has blocks is not worth
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
        if let Some(place) = self.0[row].get_mut(index) {
            *place = 0;
        }
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|row| row.capacity() * 8).sum()
    }
}

/// Directory blocks of one range of a directory's space: which numbers are taken.
#[derive(Default)]
pub(super) struct Numbers {
    /// All from here on are holes.
    end: u32,
    /// Runs of holes before it: first number and length.
    holes: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Numbers {
    /// Takes the lowest number that is a hole.
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

    /// How many there are, but for a few holes.
    pub(super) fn count(&self) -> u32 {
        self.end.saturating_sub(self.holes.len() as u32)
    }

    /// The number is a hole again.
    pub(super) fn give_back(&mut self, number: u32) {
        if number + 1 == self.end {
            self.end = number;
        } else {
            self.holes.push(Reverse((number, 1)));
        }
    }

    /// Reads what is taken of the range that starts at `first`.
    fn read(
        fs: &mut Op<'_>,
        dir: &Handle,
        layout: &Layout,
        (first, limit): (FileBlock, FileBlock),
    ) -> Result<Self> {
        let blocks = u64::from(layout.blocks());
        let mut numbers = Self::default();
        let mut at = first;
        while at < limit {
            let run = bmap::run_at(fs, dir, Fork::Data, at)?;
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

/// What is kept of a node directory.
pub(crate) struct DirState {
    pub(super) ino: Ino,
    pub(super) generation: u32,
    pub(super) maps: Maps,
    pub(super) data: Numbers,
    pub(super) leaves: Numbers,
    pub(super) bests: Bests,
    pub(super) buffers: LeafBuffers,
    /// What the store was told of the leaf buffers.
    pub(super) reported: Reported,
    /// Old values of `bests`.
    undo: Vec<(u32, u16)>,
    /// Whether more has changed than `undo` knows of.
    is_changed: bool,
    /// Whether the directory is of another form now.
    is_over: bool,
    /// Whether all but the leaf buffers must be read again.
    is_unread: bool,
}

impl DirState {
    /// Bytes of memory, without those of leaf buffers.
    pub(super) fn bytes(&self) -> usize {
        self.maps.bytes() + self.bests.bytes() + self.data.holes.capacity() * 8
    }

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

    /// Whether the directory is one with nodes.
    pub(super) fn is_valid(&self) -> bool {
        !self.is_over
    }

    /// Whether all of it is as the directory is.
    pub(super) fn is_read(&self) -> bool {
        !self.is_unread
    }

    /// Whether it may be dropped.
    pub(super) fn is_idle(&self) -> bool {
        self.is_over || self.buffers.waiting == 0
    }

    /// The state is to be read anew, but for what cannot be.
    pub(super) fn set_unread(&mut self) {
        self.is_unread = true;
    }

    /// The operation commits. False if the state is of no use any more.
    pub(super) fn keep(&mut self) -> bool {
        self.undo.clear();
        self.buffers.keep();
        self.is_changed = false;
        !self.is_over
    }

    /// The operation failed. False if the state is of no use any more.
    pub(super) fn roll_back(&mut self) -> bool {
        while let Some((number, old)) = self.undo.pop() {
            self.bests.set(number, old);
        }
        self.buffers.roll_back();
        self.is_over = false;
        if std::mem::take(&mut self.is_changed) {
            self.is_unread = true;
            return !self.is_idle();
        }
        true
    }
}

impl Op<'_> {
    /// Runs `body` with what is kept of a node directory, which is read if nothing is.
    pub(super) fn with_state<T>(
        &mut self,
        dir: &mut Handle,
        body: impl FnOnce(&mut Self, &mut Handle, &mut DirState) -> Result<T>,
    ) -> Result<T> {
        let mut state = match self.dirs.take(dir) {
            Some(mut state) => {
                if state.is_unread
                    && let Err(error) = self.read_again(dir, &mut state)
                {
                    self.dirs.give(state);
                    return Err(error);
                }
                state
            }
            None => Box::new(self.read_state(dir)?),
        };
        let outcome = body(self, dir, &mut state);
        self.dirs.give(state);
        outcome
    }

    /// Reads a state again, and keeps what waits for its leaves.
    fn read_again(&mut self, dir: &Handle, state: &mut DirState) -> Result<()> {
        let mut new = self.read_state(dir)?;
        std::mem::swap(&mut new.buffers, &mut state.buffers);
        new.reported = state.reported;
        *state = new;
        Ok(())
    }

    /// Whether something is kept of a directory, which then is one with nodes.
    pub(super) fn has_state(&mut self, dir: &Handle) -> bool {
        let Some(state) = self.dirs.take(dir) else { return false };
        self.dirs.give(state);
        true
    }

    fn read_state(&mut self, dir: &Handle) -> Result<DirState> {
        let layout = self.dir_layout();
        let data = (FileBlock(0), layout.leaf_first());
        let leaves = (layout.leaf_first(), layout.free_first());
        let mut maps = Maps::default();
        let strategy = self.fs.free_index;
        Ok(DirState {
            ino: dir.ino(),
            generation: dir.inode.generation(),
            data: Numbers::read(self, dir, &layout, data)?,
            leaves: Numbers::read(self, dir, &layout, leaves)?,
            bests: Bests::read(strategy, self, dir, &mut maps)?,
            maps,
            buffers: LeafBuffers::new(self.fs.dirs.shape(&layout)),
            reported: Reported::default(),
            undo: Vec::new(),
            is_changed: false,
            is_over: false,
            is_unread: false,
        })
    }
}

impl Xfs {
    /// Forgets what is kept of a directory: its inode becomes another one.
    pub(super) fn forget_dir(&self, ino: Ino) {
        self.dirs.forget(ino);
    }

    /// Chooses how room for new entries is found in large directories. What is written differs only
    /// in where entries lie.
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
