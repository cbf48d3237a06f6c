//! Blocks of a group that were freed but must not be taken yet: until the checkpoint that freed them is
//! durable, a crash would give them back to their file.
//!
//! They are bits over the block bitmap, so that one search looks at both. An operation's own are among
//! them at once, so that it does not take again what it has just freed.

use std::ops::Range;

use operation::groups::Busy;

use super::bitmap;

/// The busy blocks of a group.
pub(crate) struct BusyBlocks {
    /// Length of the group's block bitmap.
    bitmap_bytes: u32,
    /// Freed in the running checkpoint.
    running: BusyBits,
    /// Freed in the one being written.
    closed: BusyBits,
}

/// A bitmap, there only while it has bits, and how many.
#[derive(Default)]
struct BusyBits {
    bits: Option<Box<[u8]>>,
    count: u32,
}

impl BusyBlocks {
    /// None yet, of a group whose block bitmap has `bitmap_bytes` bytes.
    pub(super) fn new(bitmap_bytes: u32) -> Self {
        Self { bitmap_bytes, running: BusyBits::default(), closed: BusyBits::default() }
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        self.running.count + self.closed.count
    }

    /// Bitmaps of them.
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

    /// They are among them already.
    fn keep(&mut self, _: &[Range<u32>]) {}

    fn close(&mut self) {
        self.closed = std::mem::take(&mut self.running);
    }

    fn release(&mut self) {
        self.closed = BusyBits::default();
    }
}

impl BusyBits {
    /// Adds bits that are not in it, in a bitmap of `bytes` bytes.
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
