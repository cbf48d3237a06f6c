//! The state that is kept in memory of a node directory that was changed: where its blocks are, which
//! logical blocks are holes, what finds room for an entry, and the insert buffer. All but the insert buffer
//! can be read from the directory.
//!
//! A failed operation takes its changes of the state back. If more has changed than room, the state is read
//! again before it is used.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use vfs::Ino;

use super::free::Bests;
use super::insert_buffer::{BufferSize, InsertBuffer};
use super::maps::Maps;

/// Which numbers of directory blocks are taken in one part of a directory's space.
#[derive(Default)]
pub(super) struct Numbers {
    /// All numbers from here on are holes.
    end: u32,
    /// Runs of holes before it: first number and length.
    holes: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Numbers {
    /// Notes that all numbers from here on are holes.
    pub(super) fn set_end(&mut self, end: u32) {
        self.end = end;
    }

    /// Notes a run of holes before the end: first number and length.
    pub(super) fn add_holes(&mut self, first: u32, len: u32) {
        self.holes.push(Reverse((first, len)));
    }

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
}

/// What the store was told of a state's insert buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reported {
    pub(super) leaves: usize,
    pub(super) bytes: usize,
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
    /// A state as it was read from the directory, with an empty insert buffer.
    pub(super) fn new(data: Numbers, leaves: Numbers, bests: Bests, size: BufferSize) -> Self {
        Self {
            data,
            leaves,
            bests,
            insert_buffer: InsertBuffer::new(size),
            reported: Reported::default(),
            undo: Vec::new(),
            is_changed: false,
            is_over: false,
            is_unread: false,
        }
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
