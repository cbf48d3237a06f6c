//! Reads the blocks of a directory in logical order, with large reads where they are contiguous.

use crate::check::context::Context;
use crate::format::address::{Block, FileBlock};
use crate::format::dir::DirLayout;
use crate::format::extent::Extent;

/// Maximum number of bytes per read.
const BYTES_AT_ONCE: usize = 128 << 10;

/// A part of a directory's logical address space, or the space after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::check) enum Space {
    Data,
    Leaf,
    Free,
    Beyond,
}

/// Reads directory blocks, one after another.
pub(in crate::check) struct Reader<'r> {
    ctx: &'r Context<'r>,
    layout: DirLayout,
    extents: &'r [Extent],
    buffer: Vec<u8>,
    /// Logical block of the first one in the buffer, and their number.
    held: (u64, u64),
    block: Vec<u8>,
}

/// Returns the directory blocks that the extents cover at least partly: part, and number within the part.
pub(in crate::check) fn spaces(
    layout: &DirLayout,
    extents: &[Extent],
) -> impl Iterator<Item = (Space, u64)> {
    let (layout, mut last) = (*layout, None);
    let per = u64::from(layout.blocks());
    extents.iter().flat_map(move |extent| {
        let (first, end) = (extent.offset.0 / per, extent.end().0.div_ceil(per));
        // The end of one extent may be in the same directory block as the start of the next.
        let first = if last == Some(first) { first + 1 } else { first };
        if end > first {
            last = Some(end - 1);
        }
        (first..end).map(move |number| place_of(&layout, number))
    })
}

/// Returns the part of a directory block and its number in the part, by its number in the whole space.
fn place_of(layout: &DirLayout, number: u64) -> (Space, u64) {
    let per = u64::from(layout.blocks());
    let (leaf, free) = (layout.leaf_first().0 / per, layout.free_first().0 / per);
    // The part of free space is as large as the two others together.
    match number {
        _ if number < leaf => (Space::Data, number),
        _ if number < free => (Space::Leaf, number - leaf),
        _ if number < free + leaf => (Space::Free, number - free),
        _ => (Space::Beyond, number),
    }
}

impl<'r> Reader<'r> {
    pub(in crate::check) fn new(
        ctx: &'r Context<'r>,
        layout: &DirLayout,
        extents: &'r [Extent],
    ) -> Self {
        let block = vec![0; layout.size()];
        Self { ctx, layout: *layout, extents, buffer: Vec::new(), held: (0, 0), block }
    }

    /// Returns the first logical block of a directory block.
    pub(in crate::check) fn first(&self, space: Space, number: u64) -> FileBlock {
        let start = match space {
            Space::Data | Space::Beyond => FileBlock(0),
            Space::Leaf => self.layout.leaf_first(),
            Space::Free => self.layout.free_first(),
        };
        start.plus(number * u64::from(self.layout.blocks()))
    }

    fn locate(&self, at: u64) -> Option<(Block, u64)> {
        let index = self.extents.partition_point(|extent| extent.end().0 <= at);
        let extent = self.extents.get(index).filter(|extent| extent.offset.0 <= at)?;
        let skip = at - extent.offset.0;
        let block = self.ctx.geometry.device_block(extent.start.plus(skip));
        Some((block, extent.len - skip))
    }

    /// Returns location and bytes of a directory block. `None` if it is not completely mapped, or unreadable, which is
    /// reported.
    pub(in crate::check) fn read(&mut self, at: FileBlock) -> Option<(Block, &[u8])> {
        let (size, log) = (self.layout.size(), self.ctx.geometry.block_log);
        let (block, len) = self.locate(at.0)?;
        let per = u64::from(self.layout.blocks());
        if len < per {
            return self.read_pieces(at.0, block);
        }
        if at.0 < self.held.0 || at.0 + per > self.held.0 + self.held.1 {
            let most = (BYTES_AT_ONCE >> log) as u64;
            let len = (len / per * per).min(most.max(per));
            self.buffer.resize((len as usize) << log, 0);
            self.held = (0, 0);
            if !self.ctx.read(block, &mut self.buffer) {
                return None;
            }
            self.held = (at.0, len);
        }
        let start = ((at.0 - self.held.0) as usize) << log;
        Some((block, &self.buffer[start..start + size]))
    }

    fn read_pieces(&mut self, at: u64, first: Block) -> Option<(Block, &[u8])> {
        let log = self.ctx.geometry.block_log;
        for nth in 0..u64::from(self.layout.blocks()) {
            let (block, _) = self.locate(at + nth)?;
            let start = (nth as usize) << log;
            if !self.ctx.read(block, &mut self.block[start..start + (1 << log)]) {
                return None;
            }
        }
        Some((first, &self.block))
    }
}
