//! One cached metadata block.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::locks::atomic::AtomicU64;
use crate::locks::{ArcRwLockReadGuard, ArcRwLockWriteGuard, RwLock};

/// Type of a block, with everything that its format needs to verify and seal it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// Kind of structure, numbered by the format.
    pub kind: u8,
    /// Checksum seed of the owner, for formats that use one.
    pub seed: u32,
    /// Inode or group that owns the block, for verification and messages.
    pub owner: u64,
}

/// Number of a checkpoint, incremented with each one; 0 means "none".
pub(crate) type Epoch = u64;

/// Number of pieces in which changes of a block are tracked: one bit each of a `u64`.
pub(crate) const CHUNKS: usize = 64;

/// Cached information of a format about the contents of a block: 17 words in a layout defined by the format. It is
/// discarded when a transaction changes the block without declaring that the note stays valid ([`Txn::edit_noted`]), or
/// rolls a change back.
///
/// [`Txn::edit_noted`]: crate::Txn::edit_noted
pub type Note = [u64; 17];

/// Returns the mark (see [`BufferRef::marks`]) of the slot at `offset`, in a block of slots whose size is a power of two.
/// Returns 0 for slots after the first 64, which have no mark.
#[must_use]
pub fn slot_mark(offset: usize, slot_bytes: usize) -> u64 {
    1_u64.checked_shl((offset >> slot_bytes.trailing_zeros()) as u32).unwrap_or(0)
}

/// An optional note, and the marks that go with it. The slot keeps its memory when a note is discarded, because notes
/// change often.
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
        // Relaxed is sufficient: a writer holds the block exclusively, and its lock orders the accesses.
        self.marks.load(Ordering::Relaxed)
    }

    pub(crate) fn mark(&self, marks: u64) {
        self.marks.fetch_or(marks, Ordering::Relaxed);
    }
}

/// Contents of a block and their state between memory and device. The fields that every access reads come first, to
/// share a cache line.
#[derive(Default)]
#[repr(C)]
pub(crate) struct BufferState {
    /// True if `data` holds the block (read and verified, or created).
    pub(crate) loaded: bool,
    pub(crate) tag: Tag,
    pub(crate) data: Box<[u8]>,
    /// The format's note on `data`.
    pub(crate) note: NoteSlot,
    /// The checkpoint with changes of this block that are not written back yet, or 0.
    pub(crate) dirty: Epoch,
    /// The 64ths of the block that this checkpoint changed.
    pub(crate) chunks: u64,
    /// The checkpoint in which the block was forgotten (freed), while the log may still contain an older image of it;
    /// otherwise 0.
    pub(crate) forgotten: Epoch,
    pub(crate) block: u64,
    /// The last checkpoint with an image of this block in the log, while the block is not written back, or 0.
    pub(crate) logged: Epoch,
    /// The block as of an earlier checkpoint that is still being written.
    pub(crate) frozen: Option<Box<Frozen>>,
    /// Image to write back of a block that has changed since: as of the last checkpoint but one or an older one. With a
    /// small log, also as of the last checkpoint.
    pub(crate) write_back: Option<Box<[u8]>>,
}

/// Image of a block in a closed checkpoint.
pub(crate) struct Frozen {
    pub(crate) tag: Tag,
    pub(crate) data: Box<[u8]>,
    pub(crate) chunks: u64,
}

impl BufferState {
    /// Returns whether the log has an image of the block, or is about to get one.
    pub(crate) fn is_in_log(&self, running: Epoch) -> bool {
        self.logged != 0 || self.frozen.is_some() || (self.dirty != 0 && self.dirty < running)
    }

    /// Saves the old contents before the first change by the running checkpoint: for the checkpoint that is being
    /// written, or for a write-back that cannot wait for the next checkpoint. With `keeps_last`, the contents as of the
    /// last checkpoint are saved, too.
    pub(crate) fn freeze_before(&mut self, running: Epoch, keeps_last: bool) {
        if self.dirty != 0 && self.dirty < running && self.frozen.is_none() {
            let frozen = Frozen { tag: self.tag, data: self.data.clone(), chunks: self.chunks };
            self.frozen = Some(Box::new(frozen));
        } else if self.dirty == 0 && self.is_late(running, keeps_last) && self.write_back.is_none()
        {
            self.write_back = Some(self.data.clone());
        }
    }

    /// Returns whether the last image in the log must be written back before the running checkpoint is: it is older
    /// than the checkpoint before the running one, or `keeps_last` is set.
    fn is_late(&self, running: Epoch, keeps_last: bool) -> bool {
        self.logged != 0 && (keeps_last || self.logged + 1 < running)
    }
}

/// Returns the bits of the 64ths of a block of `block_size` bytes that `range` touches.
pub(crate) fn chunk_bits(range: Range<usize>, block_size: usize) -> u64 {
    if range.is_empty() {
        return 0;
    }
    let chunk = block_size / CHUNKS;
    let (first, last) = (range.start / chunk, (range.end - 1) / chunk);
    (u64::MAX >> (CHUNKS - 1 - last)) & (u64::MAX << first)
}

/// Pieces of a block that a checkpoint changed, at a granularity of 1/64 of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// One bit for each piece; bit 0 is the first piece.
    bits: u64,
    /// Size of a piece in bytes.
    piece: usize,
}

impl Changed {
    pub(crate) fn new(bits: u64, block_size: usize) -> Self {
        Self { bits, piece: block_size / CHUNKS }
    }

    /// All pieces of a block of `block_size` bytes, as for a new block.
    #[must_use]
    pub fn whole(block_size: usize) -> Self {
        Self::new(u64::MAX, block_size)
    }

    /// Size of a piece in bytes. Smaller fields may count as changed because a neighbour changed.
    #[must_use]
    pub fn piece(self) -> usize {
        self.piece
    }

    /// Returns whether bytes of `range` may have changed.
    #[inline]
    #[must_use]
    pub fn touches(self, range: Range<usize>) -> bool {
        self.bits & chunk_bits(range, self.piece * CHUNKS) != 0
    }

    /// Returns the rows of a table that may have changed, as ascending runs. The table starts at byte `start` and has
    /// `count` rows of `size` bytes. Runs overlap in a row that crosses the border of two pieces.
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

pub(crate) type SharedBuffer = Arc<RwLock<BufferState>>;
pub(crate) type WriteGuard = ArcRwLockWriteGuard<BufferState>;

/// A verified metadata block, locked for reading.
pub struct BufferRef(pub(crate) ArcRwLockReadGuard<BufferState>);

impl BufferRef {
    /// Returns the note of the block, which describes its bytes.
    #[must_use]
    pub fn note(&self) -> Option<&Note> {
        self.0.note.get()
    }

    /// Returns the marks of the block: 64 bits defined by the format. They are valid as long as the [`Note`], but
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
    fn changed_rows_are_those_of_changed_pieces() {
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
        // Rows of 12 bytes in pieces of 64, and a table that ends before the last piece.
        assert_eq!(rows(0b10, 12, 12, 340), [(4, 10)]);
        assert_eq!(rows(0b1010, 12, 12, 16), [(4, 10), (15, 16)]);
        assert_eq!(rows(u64::MAX, 12, 12, 0), []);
        let changed = Changed::new(chunk_bits(100..101, 4096), 4096);
        assert!(changed.touches(64..65) && changed.touches(0..4096) && !changed.touches(128..200));
    }
}
