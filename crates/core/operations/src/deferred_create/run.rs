//! Inodes reserved in memory for deferred files: free on disk, and not available to others.

use vfs::Ino;

/// Maximum span of a run in inode numbers.
const RUN_SPAN_MAX: u32 = u64::BITS;

/// Adjoining inodes that are reserved together: those of one or a few blocks of inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeRun {
    /// First inode number that the run can contain.
    base: u64,
    /// Bitmap of the reserved inodes, relative to `base`.
    all: u64,
    /// Bitmap of the inodes that were not taken.
    left: u64,
}

impl InodeRun {
    /// Creates a run of the inodes with a set bit, relative to `base`.
    #[must_use]
    pub const fn new(base: Ino, all: u64) -> Self {
        Self { base: base.0, all, left: all }
    }

    /// Returns the first inode number that the run can contain.
    #[must_use]
    pub(crate) const fn base(&self) -> Ino {
        Ino(self.base)
    }

    /// Returns whether all were taken.
    #[must_use]
    pub(crate) const fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Takes the first remaining inode.
    pub(crate) fn take(&mut self) -> Option<Ino> {
        if self.left == 0 {
            return None;
        }
        let bit = self.left.trailing_zeros();
        self.left &= self.left - 1;
        Some(Ino(self.base + u64::from(bit)))
    }

    /// Returns the index of an inode among those of the run.
    pub(super) fn rank(&self, ino: Ino) -> Option<usize> {
        let bit = ino.0.checked_sub(self.base).filter(|&bit| bit < RUN_SPAN_MAX.into())?;
        ((self.all >> bit) & 1 == 1).then(|| (self.all & ((1 << bit) - 1)).count_ones() as usize)
    }

    /// Returns the remaining inodes.
    pub(crate) fn left(mut self) -> impl Iterator<Item = Ino> {
        std::iter::from_fn(move || self.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_are_taken_in_order_and_know_their_rank() {
        let mut run = InodeRun::new(Ino(640), 1 << 63 | 0b1011);
        let taken: Vec<_> = std::iter::from_fn(|| run.take()).collect();
        assert_eq!(taken, [640, 641, 643, 703].map(Ino));
        assert!(run.is_empty());
        let ranks = [639, 640, 641, 642, 643, 703, 704].map(|ino| run.rank(Ino(ino)));
        assert_eq!(ranks, [None, Some(0), Some(1), None, Some(2), Some(3), None]);
    }
}
