//! Directory blocks of several file-system blocks, which an operation changes in one contiguous copy.
//!
//! The engine treats the pieces as plain bytes. When the operation commits, the checksum of the directory block is
//! updated, and differences are written into the pieces.

use std::ops::Range;

use vfs::{Corruption, Ino};

use crate::format::address::{Block, FileBlock};
use crate::format::dir::{self as format, DirBlockKind};
use crate::format::geometry::Geometry;

/// The copies of an operation.
#[derive(Default)]
pub(crate) struct Wholes(Vec<Whole>);

/// A contiguous copy of a directory block of several file-system blocks.
pub(super) struct Whole {
    pub(super) ino: Ino,
    pub(super) at: FileBlock,
    pub(super) part: DirBlockKind,
    pub(super) places: Vec<Block>,
    pub(super) data: Vec<u8>,
    pub(super) is_changed: bool,
    pub(super) is_gone: bool,
}

impl Whole {
    /// Checks the directory block before it is sealed, because the engine sees only the pieces.
    pub(super) fn verify(&self, geometry: &Geometry) -> Result<(), Corruption> {
        let Some(&first) = self.places.first() else { return Ok(()) };
        let who = (self.ino, self.at.0 as u32);
        format::verify_structure(geometry, self.part, who, first, &self.data)
            .map_err(|fault| fault.at_block(first.0))
    }
}

impl Wholes {
    /// Removes and returns all copies.
    pub(super) fn take_all(&mut self) -> Vec<Whole> {
        std::mem::take(&mut self.0)
    }

    pub(super) fn position(&self, ino: Ino, at: FileBlock) -> Option<usize> {
        self.0.iter().position(|w| w.ino == ino && w.at == at && !w.is_gone)
    }

    /// Returns the copy of a directory block, if there is one.
    pub(crate) fn find(&self, ino: Ino, at: FileBlock) -> Option<&[u8]> {
        self.position(ino, at).map(|index| self.bytes(index))
    }

    pub(crate) fn add(
        &mut self,
        ino: Ino,
        at: FileBlock,
        part: DirBlockKind,
        places: Vec<Block>,
        data: Vec<u8>,
    ) -> usize {
        self.0.push(Whole { ino, at, part, places, data, is_changed: false, is_gone: false });
        self.0.len() - 1
    }

    pub(super) fn bytes(&self, index: usize) -> &[u8] {
        &self.0[index].data
    }

    pub(crate) fn edit(&mut self, index: usize, range: Range<usize>) -> &mut [u8] {
        let whole = &mut self.0[index];
        whole.is_changed = true;
        &mut whole.data[range]
    }

    /// Records that the block is being freed.
    pub(super) fn forget(&mut self, ino: Ino, at: FileBlock) {
        if let Some(index) = self.position(ino, at) {
            self.0[index].is_gone = true;
        }
    }
}
