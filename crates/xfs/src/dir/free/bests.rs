//! What is kept in memory of the index of free space.

use super::tree::MaxTree;
use crate::format::dir::free::NO_BLOCK;

/// What is kept in memory of the index of free space.
pub(in crate::dir) enum Bests {
    /// Nothing: it is read each time.
    None,
    /// The largest value of each index block, 0 for one that is not there.
    PerBlock(PerBlock),
    /// All values.
    Tree(MaxTree),
}

/// The largest value of each index block.
pub(in crate::dir) struct PerBlock {
    pub(super) largest: Vec<u16>,
    pub(super) capacity: usize,
}

/// The room that a value of the index stands for: 0 where there is no data block.
pub(super) fn room_of(best: u16) -> u16 {
    if best == NO_BLOCK { 0 } else { best }
}

impl Bests {
    pub(in crate::dir) fn bytes(&self) -> usize {
        match self {
            Self::None => 0,
            Self::PerBlock(per) => per.largest.capacity() * 2,
            Self::Tree(tree) => tree.bytes(),
        }
    }

    /// Notes the value of a data block (0 for one that is gone). Returns the old value, if it is kept.
    pub(in crate::dir) fn set(&mut self, number: u32, best: u16) -> Option<u16> {
        match self {
            Self::Tree(tree) => Some(tree.set(number, best)),
            _ => None,
        }
    }
}

impl PerBlock {
    /// Notes the largest value of the index block that has data block `number`.
    pub(super) fn note(&mut self, number: u32, largest: u16) {
        let index = number as usize / self.capacity;
        if index >= self.largest.len() {
            self.largest.resize(index + 1, 0);
        }
        self.largest[index] = largest;
    }
}
