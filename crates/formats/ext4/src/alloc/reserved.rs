//! Inodes reserved in memory for deferred files. They are free on disk, but no other file may use them.
//!
//! A thread that holds the group's lock may allocate an inode that is neither in the bitmap nor in this set. An inode
//! leaves the set when a committed operation has set its bit in the bitmap, or when it is not needed.

use engine::locks::Mutex;
use engine::locks::atomic::AtomicU32;
use std::sync::atomic::Ordering;

use super::bitmap::Bits;

/// Maximum number of inodes of a run. Usually one block of the inode table.
pub(crate) const RUN: u32 = 16;

/// Reserved inodes of a group.
#[derive(Default)]
pub(crate) struct ReservedInodes {
    count: AtomicU32,
    bits: Mutex<Option<Box<[u8]>>>,
}

impl ReservedInodes {
    /// Returns the number of reserved inodes.
    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Calls `look` with a bitmap and the reserved inodes as its overlay.
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

    /// Releases a reserved inode.
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
