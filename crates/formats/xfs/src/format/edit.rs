//! Editing blocks range by range, so that the holder of a block can save the old bytes.

use std::ops::Range;

use super::bytes::{put16, put32};

/// A block that can be edited: one held by an operation, or plain memory.
pub(crate) trait Edit {
    /// Returns the contents of the block.
    fn bytes(&self) -> &[u8];

    /// Returns a range of it for changing.
    fn edit(&mut self, range: Range<usize>) -> &mut [u8];

    /// Moves the bytes of `source` to offset `to`; the ranges may overlap.
    fn shift(&mut self, source: Range<usize>, to: usize) {
        let start = source.start.min(to);
        let end = source.end.max(to + source.len());
        let source = source.start - start..source.end - start;
        self.edit(start..end).copy_within(source, to - start);
    }

    /// Writes a big-endian number.
    fn set16(&mut self, at: usize, value: u16) {
        put16(self.edit(at..at + 2), 0, value);
    }

    /// Writes a big-endian number.
    fn set32(&mut self, at: usize, value: u32) {
        put32(self.edit(at..at + 4), 0, value);
    }
}

/// A block in memory whose old bytes are not saved.
impl Edit for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn edit(&mut self, range: Range<usize>) -> &mut [u8] {
        &mut self[range]
    }
}
