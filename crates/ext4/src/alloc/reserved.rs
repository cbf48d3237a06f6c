//! Inodes that are kept in memory for files that wait: free on disk, and nobody else's.
//!
//! Who holds a group's lock and finds an inode neither used in the bitmap nor among these may take it. An inode is
//! let go of only after it was marked used in the bitmap by a committed operation, or if it is not needed.

use std::sync::atomic::Ordering;
use transaction::locks::Mutex;
use transaction::locks::atomic::AtomicU32;
use vfs::Ino;

use super::bitmap::Bits;

/// Inodes of a run, at most: those of a block of the inode table, mostly.
pub(super) const RUN: u32 = 16;

/// Inodes beside each other that are kept together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InodeRun {
    /// The first number that the run could have.
    base: u32,
    /// Which of them it has, of the numbers from `base` on.
    all: u16,
    /// Which of these were not taken.
    left: u16,
}

impl InodeRun {
    /// Those of the numbers from `base` on that have a bit.
    pub(super) fn new(base: u32, all: u16) -> Self {
        Self { base, all, left: all }
    }

    /// The number that tells runs apart.
    pub(crate) fn id(&self) -> u32 {
        Self::id_of(Ino(self.base.into()))
    }

    /// The number of the run that an inode would be in.
    pub(crate) fn id_of(ino: Ino) -> u32 {
        (ino.0 as u32).wrapping_sub(1) / RUN
    }

    /// Whether all were taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// The first one that is left.
    pub(crate) fn take(&mut self) -> Option<Ino> {
        if self.left == 0 {
            return None;
        }
        let bit = self.left.trailing_zeros();
        self.left &= self.left - 1;
        Some(Ino((self.base + bit).into()))
    }

    /// How many of the run come before an inode of it.
    pub(crate) fn rank(&self, ino: Ino) -> Option<usize> {
        let bit = u32::try_from(ino.0).ok()?.checked_sub(self.base).filter(|&bit| bit < RUN)?;
        ((self.all >> bit) & 1 == 1).then(|| (self.all & ((1 << bit) - 1)).count_ones() as usize)
    }

    /// Those that are left.
    pub(crate) fn left(mut self) -> impl Iterator<Item = Ino> {
        std::iter::from_fn(move || self.take())
    }
}

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

    pub(super) fn keep(&self, first: u32, mask: u16, bytes: usize) {
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
