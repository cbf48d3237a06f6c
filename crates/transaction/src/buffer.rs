//! One cached metadata block.

use std::ops::{Deref, Range};
use std::sync::Arc;

use parking_lot::{ArcRwLockReadGuard, ArcRwLockWriteGuard, RawRwLock, RwLock};

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

/// The contents of a block and where they stand between memory and device. What every use of a block
/// looks at comes first, so that it lies together in memory.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Contents {
    /// Whether `data` holds the block (read and verified, or created).
    pub(crate) loaded: bool,
    pub(crate) tag: Tag,
    pub(crate) data: Box<[u8]>,
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
    pub(crate) homeward: Option<Box<[u8]>>,
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
    /// for the way home, where that is not left to the next checkpoint. `keeps_last`: that of the last
    /// checkpoint, too.
    pub(crate) fn freeze_before(&mut self, running: Epoch, keeps_last: bool) {
        if self.dirty != 0 && self.dirty < running && self.frozen.is_none() {
            let frozen = Frozen { tag: self.tag, data: self.data.clone(), chunks: self.chunks };
            self.frozen = Some(Box::new(frozen));
        } else if self.dirty == 0 && self.is_late(running, keeps_last) && self.homeward.is_none() {
            self.homeward = Some(self.data.clone());
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

pub(crate) type Shared = Arc<RwLock<Contents>>;
pub(crate) type WriteGuard = ArcRwLockWriteGuard<RawRwLock, Contents>;

/// A verified metadata block, held for reading.
pub struct BufferRef(pub(crate) ArcRwLockReadGuard<RawRwLock, Contents>);

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
}
