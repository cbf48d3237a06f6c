//! One cached metadata block.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::locks::atomic::AtomicU64;
use crate::locks::{ArcRwLockReadGuard, ArcRwLockWriteGuard, RawRwLock, RwLock};

/// What a block is, as its format tells it apart: enough to verify and seal it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// The kind of structure, numbered by the format.
    pub kind: u8,
    /// Checksum seed of the owner, for formats that have one.
    pub seed: u32,
    /// The inode or group it belongs to, for verification and messages.
    pub owner: u64,
}

/// A number that grows by one with each checkpoint; 0 stands for "none".
pub(crate) type Epoch = u64;

/// Pieces a block's changes are tracked in: one bit each of a `u64`.
pub(crate) const CHUNKS: usize = 64;

/// What a format remembers of the bytes of a block, so that it need not go through them again: 17 words, whose
/// meaning is the format's. It is gone as soon as a transaction changes the block without saying that the note
/// stays right ([`Txn::edit_noted`]), or takes a change back.
///
/// [`Txn::edit_noted`]: crate::Txn::edit_noted
pub type Note = [u64; 17];

/// A note, or the memory for one: notes come and go with each change, and take no memory anew. And the marks,
/// which go with the note.
#[derive(Default)]
pub(crate) struct NoteSlot {
    memory: Option<Box<Note>>,
    is_set: bool,
    marks: AtomicU64,
}

impl NoteSlot {
    pub(crate) fn get(&self) -> Option<&Note> {
        self.memory.as_deref().filter(|_| self.is_set)
    }

    pub(crate) fn get_mut(&mut self) -> Option<&mut Note> {
        self.memory.as_deref_mut().filter(|_| self.is_set)
    }

    pub(crate) fn set(&mut self, note: Note) {
        match &mut self.memory {
            Some(memory) => **memory = note,
            None => self.memory = Some(Box::new(note)),
        }
        self.is_set = true;
    }

    pub(crate) fn clear(&mut self) {
        self.is_set = false;
        self.marks.store(0, Ordering::Relaxed);
    }

    pub(crate) fn marks(&self) -> u64 {
        // Who changes the block holds it alone, and its lock orders what is before and after.
        self.marks.load(Ordering::Relaxed)
    }

    pub(crate) fn mark(&self, marks: u64) {
        self.marks.fetch_or(marks, Ordering::Relaxed);
    }
}

/// The contents of a block and where they stand between memory and device. What every use of a block
/// looks at comes first, so that it lies together in memory.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Contents {
    /// Whether `data` holds the block (read and verified, or created).
    pub(crate) loaded: bool,
    pub(crate) tag: Tag,
    pub(crate) data: Box<[u8]>,
    /// What the format remembers of `data`, if anything.
    pub(crate) note: NoteSlot,
    /// The checkpoint that has changes of this block which are not home yet, or 0.
    pub(crate) dirty: Epoch,
    /// Which 64ths of the block that checkpoint changed.
    pub(crate) chunks: u64,
    /// The checkpoint in which the block was given up, as long as the log may hold an image of it
    /// from before, or 0.
    pub(crate) forgotten: Epoch,
    pub(crate) block: u64,
    /// The last checkpoint that has an image of this block in the log while the block is not home,
    /// or 0.
    pub(crate) logged: Epoch,
    /// The block as an earlier checkpoint, still being written, left it.
    pub(crate) frozen: Option<Box<Frozen>>,
    /// The block as the last checkpoint but one or an older one left it, if it has been changed since
    /// and must still go home. Where the log is small, also as the last one left it.
    pub(crate) write_back: Option<Box<[u8]>>,
}

/// The image of a block that belongs to a closed checkpoint.
pub(crate) struct Frozen {
    pub(crate) tag: Tag,
    pub(crate) data: Box<[u8]>,
    pub(crate) chunks: u64,
}

impl Contents {
    /// Whether the log has an image of the block, or is about to.
    pub(crate) fn is_in_log(&self, running: Epoch) -> bool {
        self.logged != 0 || self.frozen.is_some() || (self.dirty != 0 && self.dirty < running)
    }

    /// Keeps the image for the checkpoint being written before the first change that is not its; or
    /// for write-back, where that is not left to the next checkpoint. `keeps_last`: that of the last
    /// checkpoint, too.
    pub(crate) fn freeze_before(&mut self, running: Epoch, keeps_last: bool) {
        if self.dirty != 0 && self.dirty < running && self.frozen.is_none() {
            let frozen = Frozen { tag: self.tag, data: self.data.clone(), chunks: self.chunks };
            self.frozen = Some(Box::new(frozen));
        } else if self.dirty == 0 && self.is_late(running, keeps_last) && self.write_back.is_none()
        {
            self.write_back = Some(self.data.clone());
        }
    }

    /// Whether the last image in the log is older than the checkpoint before the running one, so that
    /// it must go home to make room; or is of that one, if it may have to.
    fn is_late(&self, running: Epoch, keeps_last: bool) -> bool {
        self.logged != 0 && (keeps_last || self.logged + 1 < running)
    }
}

/// The bits of the 64ths of a block of `block_size` bytes that `range` touches.
pub(crate) fn chunk_bits(range: Range<usize>, block_size: usize) -> u64 {
    if range.is_empty() {
        return 0;
    }
    let chunk = block_size / CHUNKS;
    let (first, last) = (range.start / chunk, (range.end - 1) / chunk);
    (u64::MAX >> (CHUNKS - 1 - last)) & (u64::MAX << first)
}

/// Which pieces of a block a checkpoint changed: to the 64th of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// A bit for each piece, the first one's lowest.
    bits: u64,
    /// Bytes of a piece.
    piece: usize,
}

impl Changed {
    pub(crate) fn new(bits: u64, block_size: usize) -> Self {
        Self { bits, piece: block_size / CHUNKS }
    }

    /// All of a block of `block_size` bytes, as of a new one.
    #[must_use]
    pub fn whole(block_size: usize) -> Self {
        Self::new(u64::MAX, block_size)
    }

    /// Only the pieces that have bytes of `range` in a block of `block_size` bytes.
    #[must_use]
    pub fn only(range: Range<usize>, block_size: usize) -> Self {
        Self::new(chunk_bits(range, block_size), block_size)
    }

    /// Bytes of a piece. What is smaller may count as changed because its neighbour is.
    #[must_use]
    pub fn piece(self) -> usize {
        self.piece
    }

    /// Whether some of the bytes of `range` may have changed.
    #[inline]
    #[must_use]
    pub fn touches(self, range: Range<usize>) -> bool {
        self.bits & chunk_bits(range, self.piece * CHUNKS) != 0
    }

    /// The rows of a table that may have changed, in runs, ascending. The table starts at byte `start` and
    /// has `count` rows of `size` bytes. Runs may have a row in common where a row is in two pieces.
    pub fn rows(
        self,
        start: usize,
        size: usize,
        count: usize,
    ) -> impl Iterator<Item = Range<usize>> {
        let end = start + size * count;
        let mut bits = self.bits & chunk_bits(start..end, self.piece * CHUNKS);
        std::iter::from_fn(move || {
            if bits == 0 {
                return None;
            }
            let first = bits.trailing_zeros();
            let len = (!(bits >> first)).trailing_zeros();
            bits &= u64::MAX.checked_shl(first + len).unwrap_or(0);
            let (from, to) = (first as usize * self.piece, (first + len) as usize * self.piece);
            let rows = from.max(start) - start..to.min(end) - start;
            Some(rows.start / size..rows.end.div_ceil(size))
        })
    }
}

pub(crate) type Shared = Arc<RwLock<Contents>>;
pub(crate) type WriteGuard = ArcRwLockWriteGuard<RawRwLock, Contents>;

/// A verified metadata block, held for reading.
pub struct BufferRef(pub(crate) ArcRwLockReadGuard<RawRwLock, Contents>);

impl BufferRef {
    /// Marks of the block's bytes as they are: 64 bits whose meaning is the format's. They are as a [`Note`], but
    /// readers may add some.
    #[must_use]
    pub fn marks(&self) -> u64 {
        self.0.note.marks()
    }

    /// Adds marks.
    pub fn mark(&self, marks: u64) {
        self.0.note.mark(marks);
    }
}

impl Deref for BufferRef {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_bits_cover_exactly_the_touched_pieces() {
        assert_eq!(chunk_bits(0..1, 4096), 1);
        assert_eq!(chunk_bits(63..65, 4096), 0b11);
        assert_eq!(chunk_bits(0..4096, 4096), u64::MAX);
        assert_eq!(chunk_bits(4095..4096, 4096), 1 << 63);
        assert_eq!(chunk_bits(10..10, 4096), 0);
        assert_eq!(chunk_bits(16..32, 1024), 0b10);
    }

    #[test]
    fn rows_that_changed_are_those_of_changed_pieces() {
        let rows = |bits, start, size, count| {
            Changed::new(bits, 4096)
                .rows(start, size, count)
                .map(|rows| (rows.start, rows.end))
                .collect::<Vec<_>>()
        };
        assert_eq!(rows(u64::MAX, 64, 8, 504), [(0, 504)]);
        assert_eq!(rows(0b1101, 64, 8, 504), [(8, 24)]);
        assert_eq!(rows(0b1, 64, 8, 504), []);
        assert_eq!(rows(1 << 63 | 0b10, 64, 8, 504), [(0, 8), (496, 504)]);
        // Rows of 12 bytes in pieces of 64, and a table that ends before its last piece.
        assert_eq!(rows(0b10, 12, 12, 340), [(4, 10)]);
        assert_eq!(rows(0b1010, 12, 12, 16), [(4, 10), (15, 16)]);
        assert_eq!(rows(u64::MAX, 12, 12, 0), []);
        let changed = Changed::only(100..101, 4096);
        assert!(changed.touches(64..65) && changed.touches(0..4096) && !changed.touches(128..200));
    }
}
