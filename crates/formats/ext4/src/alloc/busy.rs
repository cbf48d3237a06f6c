//! Freed blocks of a group that must not be allocated yet. Until the checkpoint that freed them is durable, a crash
//! would return them to their former file.
//!
//! They are overlays of the block bitmap, so that one search covers both. Blocks that an operation frees become busy at
//! once, so that it does not allocate them again itself.

use std::ops::Range;

use operations::groups::Busy;

use super::bitmap;

/// Busy blocks of a group.
pub(crate) struct BusyBlocks {
    /// Length of the group's block bitmap, in bytes.
    bitmap_bytes: u32,
    /// Blocks freed in the running checkpoint.
    running: BusyBits,
    /// Blocks freed in the checkpoint that is being written.
    closed: BusyBits,
}

/// A bitmap, allocated only while it has set bits, and the number of set bits.
#[derive(Default)]
struct BusyBits {
    bits: Option<Box<[u8]>>,
    count: u32,
}

impl BusyBlocks {
    /// Returns an empty set for a group whose block bitmap has `bitmap_bytes` bytes.
    pub(super) fn new(bitmap_bytes: u32) -> Self {
        Self { bitmap_bytes, running: BusyBits::default(), closed: BusyBits::default() }
    }

    /// Returns the number of busy blocks.
    pub(super) fn count(&self) -> u32 {
        self.running.count + self.closed.count
    }

    /// Returns the bitmaps of the busy blocks.
    pub(super) fn bitmaps(&self) -> [Option<&[u8]>; 2] {
        [self.running.bits.as_deref(), self.closed.bits.as_deref()]
    }
}

impl Busy for BusyBlocks {
    fn add(&mut self, freed: &Range<u32>) {
        self.running.add(freed.clone(), self.bitmap_bytes as usize);
    }

    fn take_back(&mut self, freed: &[Range<u32>]) {
        freed.iter().for_each(|run| self.running.remove(run.clone()));
    }

    /// The committed blocks are already in the set.
    fn keep(&mut self, _: &[Range<u32>]) {}

    fn close(&mut self) {
        self.closed = std::mem::take(&mut self.running);
    }

    fn release(&mut self) {
        self.closed = BusyBits::default();
    }
}

impl BusyBits {
    /// Adds bits that are not set yet, in a bitmap of `bytes` bytes.
    fn add(&mut self, range: Range<u32>, bytes: usize) {
        self.count += range.end - range.start;
        let bits = self.bits.get_or_insert_with(|| vec![0; bytes].into());
        let window = bitmap::bytes_of(&range);
        bitmap::set(&mut bits[window.clone()], window.start as u32 * 8, range);
    }

    fn remove(&mut self, range: Range<u32>) {
        self.count -= range.end - range.start;
        if let Some(bits) = &mut self.bits {
            let window = bitmap::bytes_of(&range);
            bitmap::clear(&mut bits[window.clone()], window.start as u32 * 8, range);
        }
    }
}
