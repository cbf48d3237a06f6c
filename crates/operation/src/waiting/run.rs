//! Inodes that are kept in memory for files that wait: free on disk, and nobody else's.

use vfs::Ino;

/// Numbers that a run spans, at most.
pub const RUN_SPAN_MAX: u32 = u64::BITS;

/// Inodes near each other that are kept together: those of a block of inodes, or of a few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeRun {
    /// The first number that the run could have.
    base: u64,
    /// Which of them it has, of the numbers from `base` on.
    all: u64,
    /// Which of these were not taken.
    left: u64,
}

impl InodeRun {
    /// Those of the numbers from `base` on that have a bit.
    #[must_use]
    pub const fn new(base: Ino, all: u64) -> Self {
        Self { base: base.0, all, left: all }
    }

    /// The first number that the run could have.
    #[must_use]
    pub const fn base(&self) -> Ino {
        Ino(self.base)
    }

    /// Whether all were taken.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// The first one that is left.
    pub fn take(&mut self) -> Option<Ino> {
        if self.left == 0 {
            return None;
        }
        let bit = self.left.trailing_zeros();
        self.left &= self.left - 1;
        Some(Ino(self.base + u64::from(bit)))
    }

    /// How many of the run come before an inode of it.
    pub(super) fn rank(&self, ino: Ino) -> Option<usize> {
        let bit = ino.0.checked_sub(self.base).filter(|&bit| bit < RUN_SPAN_MAX.into())?;
        ((self.all >> bit) & 1 == 1).then(|| (self.all & ((1 << bit) - 1)).count_ones() as usize)
    }

    /// Those that are left.
    pub fn left(mut self) -> impl Iterator<Item = Ino> {
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
