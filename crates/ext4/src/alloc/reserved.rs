//! Inodes that are kept in memory for files that wait: free on disk, and nobody else's.
//!
//! Who holds a group's lock and finds an inode neither used in the bitmap nor among these may take it. An inode is
//! let go of only after it was marked used in the bitmap by a committed operation, or if it is not needed.

use std::sync::atomic::Ordering;
use transaction::locks::Mutex;
use transaction::locks::atomic::AtomicU32;

use super::bitmap::Bits;

/// Inodes of a run, at most: those of a block of the inode table, mostly.
pub(crate) const RUN: u32 = 16;

/// Inodes of a group that are kept.
#[derive(Default)]
pub(crate) struct ReservedInodes {
    count: AtomicU32,
    bits: Mutex<Option<Box<[u8]>>>,
}

impl ReservedInodes {
    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Lets `look` see them over a bitmap.
    pub(super) fn over<R>(&self, bitmap: &[u8], look: impl FnOnce(Bits<'_>) -> R) -> R {
        if self.count() == 0 {
            return look(Bits::plain(bitmap));
        }
        let bits = self.bits.lock();
        look(Bits { bitmap, busy: [bits.as_deref(), None] })
    }

    pub(super) fn keep(&self, first: u32, mask: u64, bytes: usize) {
        let mut bits = self.bits.lock();
        let bits = bits.get_or_insert_with(|| vec![0; bytes].into());
        for bit in (0..RUN).filter(|bit| (mask >> bit) & 1 == 1) {
            bits[((first + bit) / 8) as usize] |= 1 << ((first + bit) % 8);
        }
        self.count.fetch_add(mask.count_ones(), Ordering::Relaxed);
    }

    /// Lets go of one.
    pub(super) fn let_go(&self, index: u32) {
        let mut bits = self.bits.lock();
        let Some(byte) = bits.as_mut().and_then(|bits| bits.get_mut((index / 8) as usize)) else {
            return;
        };
        if (*byte >> (index % 8)) & 1 == 1 {
            *byte &= !(1 << (index % 8));
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
