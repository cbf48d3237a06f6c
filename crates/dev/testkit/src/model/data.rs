//! The contents of regular files.

use std::ops::ControlFlow;

use vfs::{AllocateMode, Attributes, Error, ExtentPlace, Ino, MappedExtent, Result, Timestamp};

use super::state::{FileBlocks, ModelState};

/// Sets the times of a change of contents, if `time` is given.
fn touch(attributes: &mut Attributes, time: Option<Timestamp>) {
    attributes.mtime = time.unwrap_or(attributes.mtime);
    attributes.ctime = time.unwrap_or(attributes.ctime);
}

/// Splits a byte range at block boundaries into block, offset in it, and length.
fn pieces(unit: u64, offset: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let within = (offset + done) % unit;
        let count = (unit - within).min(len - done);
        let piece = ((offset + done) / unit, within as usize, count as usize);
        done += count;
        (count > 0).then_some(piece)
    })
}

fn end_of(offset: u64, len: u64) -> Result<u64> {
    offset.checked_add(len).ok_or(Error::FileTooLarge)
}

fn count_blocks(unit: u64, attributes: &mut Attributes, blocks: &FileBlocks) {
    attributes.blocks_512 = blocks.len() as u64 * (unit / 512);
}

/// Frees the whole blocks of a range and zeroes the rest of it.
fn punch(unit: u64, blocks: &mut FileBlocks, offset: u64, end: u64) {
    let (first, last) = (offset / unit, (end - 1) / unit);
    let touched: Vec<u64> = blocks.range(first..=last).map(|(&block, _)| block).collect();
    for block in touched {
        let start = block * unit;
        let from = offset.max(start) - start;
        let to = end.min(start.saturating_add(unit)) - start;
        if to - from == unit {
            blocks.remove(&block);
        } else if let Some(Some(bytes)) = blocks.get_mut(&block) {
            bytes[from as usize..to as usize].fill(0);
        }
    }
}

impl ModelState {
    pub(super) fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let unit = self.block_bytes;
        let (attributes, blocks) = self.regular(ino)?;
        let len = attributes.size.saturating_sub(offset).min(buf.len() as u64);
        let mut done = 0;
        for (block, within, count) in pieces(unit, offset, len) {
            let part = &mut buf[done..done + count];
            match blocks.get(&block) {
                Some(Some(bytes)) => part.copy_from_slice(&bytes[within..within + count]),
                _ => part.fill(0),
            }
            done += count;
        }
        Ok(done)
    }

    pub(super) fn write(
        &mut self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        time: Option<Timestamp>,
    ) -> Result<()> {
        let unit = self.block_bytes;
        let (attributes, blocks) = self.regular_mut(ino)?;
        let end = end_of(offset, data.len() as u64)?;
        let mut done = 0;
        for (block, within, count) in pieces(unit, offset, data.len() as u64) {
            let place = blocks.entry(block).or_default();
            let bytes = place.get_or_insert_with(|| vec![0; unit as usize].into());
            bytes[within..within + count].copy_from_slice(&data[done..done + count]);
            done += count;
        }
        if !data.is_empty() {
            attributes.size = attributes.size.max(end);
            touch(attributes, time);
        }
        count_blocks(unit, attributes, blocks);
        Ok(())
    }

    pub(super) fn allocate(
        &mut self,
        ino: Ino,
        offset: u64,
        len: u64,
        mode: AllocateMode,
    ) -> Result<()> {
        let unit = self.block_bytes;
        let (attributes, blocks) = self.regular_mut(ino)?;
        if len == 0 {
            return Err(Error::Invalid("an empty range"));
        }
        let end = end_of(offset, len)?;
        match mode {
            AllocateMode::PunchHole => {
                // The last block counts as whole if the range contains all of its bytes up to the size.
                let is_all = end >= attributes.size;
                let end = if is_all { end.checked_next_multiple_of(unit) } else { Some(end) };
                punch(unit, blocks, offset, end.unwrap_or(u64::MAX));
            }
            AllocateMode::Zero | AllocateMode::ZeroKeepSize => {
                punch(unit, blocks, offset, end);
                provide(unit, blocks, offset, len);
            }
            AllocateMode::Unwritten | AllocateMode::UnwrittenKeepSize | AllocateMode::Exposed => {
                provide(unit, blocks, offset, len);
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
        count_blocks(unit, attributes, blocks);
        Ok(())
    }

    pub(super) fn truncate(&mut self, ino: Ino, size: u64, time: Option<Timestamp>) -> Result<()> {
        let unit = self.block_bytes;
        let (attributes, blocks) = self.regular_mut(ino)?;
        // Growing keeps preallocated space past the size.
        if size <= attributes.size {
            blocks.retain(|block, _| *block < size.div_ceil(unit));
            if let Some(Some(bytes)) = blocks.get_mut(&(size / unit)) {
                bytes[(size % unit) as usize..].fill(0);
            }
        }
        attributes.size = size;
        touch(attributes, time);
        count_blocks(unit, attributes, blocks);
        Ok(())
    }

    /// Copies the blocks of a range. Only data is copied: unwritten space becomes a hole, except over other such space.
    pub(super) fn clone_range(
        &mut self,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
        time: Option<Timestamp>,
    ) -> Result<()> {
        let unit = self.block_bytes;
        let (_, blocks) = self.regular(to.0)?;
        let old: FileBlocks = blocks.clone();
        let (source, blocks) = self.regular(from.0)?;
        let left = source.size.checked_sub(from.1).filter(|left| len <= *left);
        let left = left.ok_or(Error::Invalid("past the end of the source"))?;
        let len = if len == 0 { left } else { len };
        let (first, count) = (from.1 / unit, len.div_ceil(unit));
        let is_aligned = from.1.is_multiple_of(unit) && to.1.is_multiple_of(unit);
        let end = end_of(to.1, len)?;
        let is_end = len == left && end >= self.regular(to.0)?.0.size;
        let is_circle = from.0 == to.0 && first.abs_diff(to.1 / unit) < count;
        if !is_aligned || !len.is_multiple_of(unit) && !is_end || is_circle {
            return Err(Error::Invalid("not a range that can be shared"));
        }
        let new = (0..count).map(|at| blocks.get(&(first + at)).cloned()).collect::<Vec<_>>();
        if count == 0 {
            return Ok(());
        }
        let (attributes, blocks) = self.regular_mut(to.0)?;
        for (at, place) in (to.1 / unit..).zip(new) {
            match (place, old.get(&at)) {
                (Some(Some(bytes)), _) => drop(blocks.insert(at, Some(bytes))),
                (Some(None), Some(None)) => {}
                _ => drop(blocks.remove(&at)),
            }
        }
        attributes.size = attributes.size.max(end);
        touch(attributes, time);
        count_blocks(unit, attributes, blocks);
        Ok(())
    }

    /// Exchanges the blocks of two ranges, and the sizes if `len` is 0.
    pub(super) fn exchange_range(
        &mut self,
        one: (Ino, u64),
        two: (Ino, u64),
        len: u64,
        time: Option<Timestamp>,
    ) -> Result<()> {
        let unit = self.block_bytes;
        let sizes = (self.regular(one.0)?.0.size, self.regular(two.0)?.0.size);
        let left = |size: u64, at: u64| size.checked_sub(at).filter(|left| len <= *left);
        let (Some(left_one), Some(left_two)) = (left(sizes.0, one.1), left(sizes.1, two.1)) else {
            return Err(Error::Invalid("past the end of a file"));
        };
        let all = if len == 0 { left_one.max(left_two) } else { len };
        let (from, to, count) = (one.1 / unit, two.1 / unit, all.div_ceil(unit));
        let is_aligned = one.1.is_multiple_of(unit) && two.1.is_multiple_of(unit);
        let is_end = len == 0 || len.is_multiple_of(unit) || len == left_one && len == left_two;
        let is_circle = one.0 == two.0 && (len == 0 || from.abs_diff(to) < count);
        if !is_aligned || !is_end || is_circle {
            return Err(Error::Invalid("not ranges that can be exchanged"));
        }
        let take = |blocks: &mut FileBlocks, first: u64| {
            (0..count).map(|at| blocks.remove(&(first + at))).collect::<Vec<_>>()
        };
        let first = take(self.regular_mut(one.0)?.1, from);
        let second = take(self.regular_mut(two.0)?.1, to);
        let new_sizes = (one.1 + left_two, two.1 + left_one);
        for (ino, start, places, size) in
            [(one.0, from, second, new_sizes.0), (two.0, to, first, new_sizes.1)]
        {
            let (attributes, blocks) = self.regular_mut(ino)?;
            for (at, place) in (start..).zip(places) {
                place.into_iter().for_each(|place| drop(blocks.insert(at, place)));
            }
            attributes.size = if len == 0 { size } else { attributes.size };
            touch(attributes, time);
            count_blocks(unit, attributes, blocks);
        }
        Ok(())
    }

    pub(super) fn extent_map(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        each: &mut dyn FnMut(MappedExtent) -> ControlFlow<()>,
    ) -> Result<()> {
        let unit = self.block_bytes;
        let (attributes, blocks) = self.regular(ino)?;
        let end = attributes.size.min(offset.saturating_add(len));
        // The model has no device: each block has its own number as address.
        let place = |block: u64| match blocks.get(&block) {
            Some(Some(_)) => ExtentPlace::Device(block * unit),
            Some(None) => ExtentPlace::Unwritten(block * unit),
            None => ExtentPlace::Hole,
        };
        let mut at = offset;
        while at < end {
            let block = at / unit;
            let next_block = if blocks.contains_key(&block) {
                block + 1
            } else {
                blocks.range(block..).next().map_or(u64::MAX, |(&next, _)| next)
            };
            let next = next_block.saturating_mul(unit).min(end);
            if each(MappedExtent { offset: at, len: next - at, place: place(block) }).is_break() {
                break;
            }
            at = next;
        }
        Ok(())
    }
}

/// Allocates unwritten space in the holes of a range.
fn provide(unit: u64, blocks: &mut FileBlocks, offset: u64, len: u64) {
    for (block, ..) in pieces(unit, offset, len) {
        blocks.entry(block).or_default();
    }
}
