//! The in-memory state of a node directory that was changed: the locations of its blocks, its holes, the index to find
//! room for an entry, and the insert buffer. All except the insert buffer can be read from the directory.
//!
//! A failed operation undoes its changes of the state. If more than room has changed, the state is read again before
//! its next use.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use vfs::Ino;

use super::free::Bests;
use super::insert_buffer::{BufferSize, InsertBuffer};
use super::maps::Maps;

/// Block numbers in use in one part of a directory's address space.
#[derive(Default)]
pub(super) struct Numbers {
    /// All numbers from this one on are holes.
    end: u32,
    /// Runs of holes before `end`: first number and length.
    holes: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Numbers {
    /// Sets the number from which on all are holes.
    pub(super) fn set_end(&mut self, end: u32) {
        self.end = end;
    }

    /// Adds a run of holes before the end: first number and length.
    pub(super) fn add_holes(&mut self, first: u32, len: u32) {
        self.holes.push(Reverse((first, len)));
    }

    /// Allocates the lowest number that is a hole, and returns it.
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

    /// Returns the approximate count of numbers in use: each run of holes counts as one hole.
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

/// Contribution of a state's insert buffer to the counters of the store.
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

/// The state of a node directory except the locations of its blocks, which other forms use, too.
pub(super) struct NodeState {
    pub(super) data: Numbers,
    pub(super) leaves: Numbers,
    pub(super) bests: Bests,
    pub(super) insert_buffer: InsertBuffer,
    /// Values of the insert buffer that are included in the counters of the store.
    pub(super) reported: Reported,
    /// Previous values of `bests`.
    undo: Vec<(u32, u16)>,
    /// True if there were changes that `undo` does not cover.
    is_changed: bool,
    /// True if the directory was converted to another form.
    is_over: bool,
    /// True if all except the insert buffer must be read again.
    is_unread: bool,
}

impl DirState {
    /// Returns the bytes of memory, without those of the insert buffer.
    pub(super) fn bytes(&self) -> usize {
        self.maps.bytes() + self.nodes.bests.bytes() + self.nodes.data.holes.capacity() * 8
    }

    /// Returns whether the directory still has node form.
    pub(super) fn is_valid(&self) -> bool {
        !self.nodes.is_over
    }

    /// Returns whether the whole state is current.
    pub(super) fn is_read(&self) -> bool {
        !self.nodes.is_unread
    }

    /// Returns whether the state may be dropped.
    pub(super) fn is_idle(&self) -> bool {
        self.nodes.is_idle()
    }

    /// Marks all except the insert buffer to be read again.
    #[cfg(feature = "free-index-strategies")]
    pub(super) fn set_unread(&mut self) {
        self.nodes.is_unread = true;
    }

    /// Keeps the changes of an operation that commits. Returns false if the state must be dropped.
    pub(super) fn keep(&mut self) -> bool {
        self.nodes.keep();
        self.is_valid()
    }

    /// Undoes the changes of a failed operation. Returns false if the state must be dropped.
    pub(super) fn roll_back(&mut self) -> bool {
        self.nodes.roll_back()
    }
}

impl NodeState {
    /// Returns a state as read from the directory, with an empty insert buffer.
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

    /// Records a change that cannot be undone in memory.
    pub(super) fn set_changed(&mut self) {
        self.is_changed = true;
    }

    /// Records that the directory was converted from node form to another.
    pub(super) fn set_over(&mut self) {
        self.is_over = true;
    }

    /// Sets the longest unused range of a data block.
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
