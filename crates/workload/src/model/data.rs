//! The contents of regular files.

use std::ops::ControlFlow;

use vfs::{AllocateMode, Attributes, Error, ExtentPlace, Ino, MappedExtent, Result};

use super::BLOCK_BYTES;
use super::state::{Blocks, State};

/// Splits a byte range at block boundaries: block, offset in it, length.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let within = (offset + done) % BLOCK_BYTES;
        let count = (BLOCK_BYTES - within).min(len - done);
        let piece = ((offset + done) / BLOCK_BYTES, within as usize, count as usize);
        done += count;
        (count > 0).then_some(piece)
    })
}

fn end_of(offset: u64, len: u64) -> Result<u64> {
    offset.checked_add(len).ok_or(Error::FileTooLarge)
}

fn count_blocks(attributes: &mut Attributes, blocks: &Blocks) {
    attributes.blocks_512 = blocks.len() as u64 * (BLOCK_BYTES / 512);
}

/// Gives back the whole blocks of a range and zeroes what the range holds of the others.
fn punch(blocks: &mut Blocks, offset: u64, end: u64) {
    let (first, last) = (offset / BLOCK_BYTES, (end - 1) / BLOCK_BYTES);
    let touched: Vec<u64> = blocks.range(first..=last).map(|(&block, _)| block).collect();
    for block in touched {
        let start = block * BLOCK_BYTES;
        let from = offset.max(start) - start;
        let to = end.min(start.saturating_add(BLOCK_BYTES)) - start;
        if to - from == BLOCK_BYTES {
            blocks.remove(&block);
        } else if let Some(Some(bytes)) = blocks.get_mut(&block) {
            bytes[from as usize..to as usize].fill(0);
        }
    }
}

impl State {
    pub(super) fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (attributes, blocks) = self.regular(ino)?;
        let len = attributes.size.saturating_sub(offset).min(buf.len() as u64);
        let mut done = 0;
        for (block, within, count) in pieces(offset, len) {
            let part = &mut buf[done..done + count];
            match blocks.get(&block) {
                Some(Some(bytes)) => part.copy_from_slice(&bytes[within..within + count]),
                _ => part.fill(0),
            }
            done += count;
        }
        Ok(done)
    }

    pub(super) fn write(&mut self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        let (attributes, blocks) = self.regular_mut(ino)?;
        let end = end_of(offset, data.len() as u64)?;
        let mut done = 0;
        for (block, within, count) in pieces(offset, data.len() as u64) {
            let place = blocks.entry(block).or_default();
            let bytes = place.get_or_insert_with(|| vec![0; BLOCK_BYTES as usize].into());
            bytes[within..within + count].copy_from_slice(&data[done..done + count]);
            done += count;
        }
        if !data.is_empty() {
            attributes.size = attributes.size.max(end);
        }
        count_blocks(attributes, blocks);
        Ok(())
    }

    pub(super) fn allocate(
        &mut self,
        ino: Ino,
        offset: u64,
        len: u64,
        mode: AllocateMode,
    ) -> Result<()> {
        let (attributes, blocks) = self.regular_mut(ino)?;
        if len == 0 {
            return Err(Error::Invalid("an empty range"));
        }
        let end = end_of(offset, len)?;
        match mode {
            AllocateMode::PunchHole => punch(blocks, offset, end),
            AllocateMode::Zero | AllocateMode::ZeroKeepSize => {
                punch(blocks, offset, end);
                provide(blocks, offset, len);
            }
            AllocateMode::Unwritten | AllocateMode::UnwrittenKeepSize | AllocateMode::Exposed => {
                provide(blocks, offset, len);
            }
        }
        match mode {
            AllocateMode::Unwritten | AllocateMode::Zero | AllocateMode::Exposed => {
                attributes.size = attributes.size.max(end);
            }
            AllocateMode::UnwrittenKeepSize
            | AllocateMode::ZeroKeepSize
            | AllocateMode::PunchHole => {}
        }
        count_blocks(attributes, blocks);
        Ok(())
    }

    pub(super) fn truncate(&mut self, ino: Ino, size: u64) -> Result<()> {
        let (attributes, blocks) = self.regular_mut(ino)?;
        // Growing keeps space that was provided past the size.
        if size <= attributes.size {
            blocks.retain(|block, _| *block < size.div_ceil(BLOCK_BYTES));
            if let Some(Some(bytes)) = blocks.get_mut(&(size / BLOCK_BYTES)) {
                bytes[(size % BLOCK_BYTES) as usize..].fill(0);
            }
        }
        attributes.size = size;
        count_blocks(attributes, blocks);
        Ok(())
    }

    pub(super) fn extent_map(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(MappedExtent) -> ControlFlow<()>,
    ) -> Result<()> {
        let (attributes, blocks) = self.regular(ino)?;
        let end = attributes.size.min(offset.saturating_add(len));
        // The model has no device: each block stands for itself.
        let place = |block: u64| match blocks.get(&block) {
            Some(Some(_)) => ExtentPlace::Device(block * BLOCK_BYTES),
            Some(None) => ExtentPlace::Unwritten(block * BLOCK_BYTES),
            None => ExtentPlace::Hole,
        };
        let mut at = offset;
        while at < end {
            let block = at / BLOCK_BYTES;
            let next_block = if blocks.contains_key(&block) {
                block + 1
            } else {
                blocks.range(block..).next().map_or(u64::MAX, |(&next, _)| next)
            };
            let next = next_block.saturating_mul(BLOCK_BYTES).min(end);
            if each(MappedExtent { offset: at, len: next - at, place: place(block) }).is_break() {
                break;
            }
            at = next;
        }
        Ok(())
    }
}

/// Gives the holes of a range unwritten space.
fn provide(blocks: &mut Blocks, offset: u64, len: u64) {
    for (block, ..) in pieces(offset, len) {
        blocks.entry(block).or_default();
    }
}
