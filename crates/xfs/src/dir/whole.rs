//! Directory blocks of several blocks of the file system, which an operation changes in one piece.
//!
//! The pieces are plain bytes to the engine. When the operation commits, the checksum of the whole is
//! brought up to date, and what differs goes into the pieces.

use operation::Outcome;
use std::ops::Range;

use vfs::{Corruption, Ino};

use crate::format::address::{Block, FileBlock};
use crate::format::dir::{self as format, Part};
use crate::format::geometry::Geometry;
use crate::kind::Kind;
use crate::op::Op;

/// The copies of an operation.
#[derive(Default)]
pub(crate) struct Wholes(Vec<Whole>);

struct Whole {
    ino: Ino,
    at: FileBlock,
    part: Part,
    places: Vec<Block>,
    data: Vec<u8>,
    is_changed: bool,
    is_gone: bool,
}

impl Whole {
    /// Checks the block, which is about to be sealed. The engine sees the pieces alone.
    fn verify(&self, geometry: &Geometry) -> Result<(), Corruption> {
        let Some(&first) = self.places.first() else { return Ok(()) };
        let who = (self.ino, self.at.0 as u32);
        format::verify_structure(geometry, self.part, who, first, &self.data)
            .map_err(|fault| fault.at_block(first.0))
    }
}

impl Wholes {
    pub(super) fn position(&self, ino: Ino, at: FileBlock) -> Option<usize> {
        self.0.iter().position(|w| w.ino == ino && w.at == at && !w.is_gone)
    }

    /// The copy of a directory block, if there is one.
    pub(crate) fn find(&self, ino: Ino, at: FileBlock) -> Option<&[u8]> {
        self.position(ino, at).map(|index| self.bytes(index))
    }

    pub(crate) fn add(
        &mut self,
        ino: Ino,
        at: FileBlock,
        part: Part,
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

    /// The block is being given back.
    pub(super) fn forget(&mut self, ino: Ino, at: FileBlock) {
        if let Some(index) = self.position(ino, at) {
            self.0[index].is_gone = true;
        }
    }
}

impl Op<'_> {
    /// Brings the copies of directory blocks into their pieces.
    pub(crate) fn write_wholes(&mut self) -> Outcome<()> {
        let geometry = self.fs.volume.geometry;
        let changed = |whole: &Whole| whole.is_changed && !whole.is_gone;
        for mut whole in std::mem::take(&mut self.wholes.0).into_iter().filter(changed) {
            whole.verify(&geometry).map_err(|fault| self.fs.refuse(fault))?;
            format::seal(&geometry, whole.part, &mut whole.data);
            let pieces = whole.data.chunks_exact(geometry.block_size());
            for (i, (place, new)) in whole.places.iter().zip(pieces).enumerate() {
                let tag = Kind::Part.of_inode(whole.ino, whole.at.0 as u32 + i as u32);
                let id = self.buffer(*place, tag)?;
                if self.fs.engine.has_log() {
                    // Whoever replays takes the block as a whole.
                    self.txn.edit(id, 0..new.len()).copy_from_slice(new);
                    continue;
                }
                let old = self.txn.data(id);
                let Some(first) = old.iter().zip(new).position(|(old, new)| old != new) else {
                    continue;
                };
                let last = old.iter().zip(new).rposition(|(old, new)| old != new);
                let range = first..last.unwrap_or(first) + 1;
                self.txn.edit(id, range.clone()).copy_from_slice(&new[range]);
            }
        }
        Ok(())
    }
}
