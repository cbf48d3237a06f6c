//! Cached values of the free-space index.

use super::tree::MaxTree;
use crate::format::dir::free::NO_BLOCK;

/// Cached values of the free-space index.
pub(in crate::dir) enum Bests {
    /// No values: the index is read each time.
    #[cfg(feature = "free-index-strategies")]
    None,
    /// The largest value of each index block, 0 for a missing one.
    #[cfg(feature = "free-index-strategies")]
    PerBlock(PerBlock),
    /// All values.
    Tree(MaxTree),
}

/// The largest value of each index block.
#[cfg(feature = "free-index-strategies")]
pub(in crate::dir) struct PerBlock {
    pub(super) largest: Vec<u16>,
    pub(super) capacity: usize,
}

/// Returns the room represented by a value of the index: 0 without a data block.
pub(super) fn room_of(best: u16) -> u16 {
    if best == NO_BLOCK { 0 } else { best }
}

impl Bests {
    pub(in crate::dir) fn bytes(&self) -> usize {
        match self {
            #[cfg(feature = "free-index-strategies")]
            Self::None => 0,
            #[cfg(feature = "free-index-strategies")]
            Self::PerBlock(per) => per.largest.capacity() * 2,
            Self::Tree(tree) => tree.bytes(),
        }
    }

    /// Sets the value of a data block (0 if it was freed). Returns the previous value, if it was cached.
    pub(in crate::dir) fn set(&mut self, number: u32, best: u16) -> Option<u16> {
        match self {
            Self::Tree(tree) => Some(tree.set(number, best)),
            #[cfg(feature = "free-index-strategies")]
            _ => None,
        }
    }
}

#[cfg(feature = "free-index-strategies")]
impl PerBlock {
    /// Sets the largest value of the index block that describes data block `number`.
    pub(super) fn note(&mut self, number: u32, largest: u16) {
        let index = number as usize / self.capacity;
        if index >= self.largest.len() {
            self.largest.resize(index + 1, 0);
        }
        self.largest[index] = largest;
    }
}
