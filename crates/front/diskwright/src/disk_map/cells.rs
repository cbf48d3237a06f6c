//! Cells: equal parts of the disk, with counts of their blocks by kind.

use vfs::survey::{BlockUse, Extent};

/// Number of blocks of each kind, indexed by kind.
pub(crate) type Counts = [u64; BlockUse::COUNT];

/// Equal parts of the disk in order. The last one may be smaller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cells {
    blocks: u64,
    cell_blocks: u64,
    counts: Vec<Counts>,
}

impl Cells {
    /// Creates at most `wanted` cells, at least one. Their size in blocks is a power of two or three times a power of
    /// two, so that cells begin at round offsets.
    pub(crate) fn new(blocks: u64, wanted: usize) -> Self {
        let least = blocks.div_ceil(wanted.max(1) as u64).max(1);
        let cell_blocks = match least.checked_next_power_of_two() {
            Some(power) if power >= 4 && least <= power / 4 * 3 => power / 4 * 3,
            power => power.unwrap_or(u64::MAX),
        };
        let count = blocks.div_ceil(cell_blocks).max(1) as usize;
        Self { blocks, cell_blocks, counts: vec![[0; BlockUse::COUNT]; count] }
    }

    /// Returns the number of cells.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Returns the number of blocks of every cell except the last.
    pub fn cell_blocks(&self) -> u64 {
        self.cell_blocks
    }

    /// Returns the blocks of a cell.
    pub fn range(&self, cell: usize) -> std::ops::Range<u64> {
        let start = (cell as u64 * self.cell_blocks).min(self.blocks);
        start..start.saturating_add(self.cell_blocks).min(self.blocks)
    }

    /// Returns the number of blocks of each kind in a cell, indexed by kind.
    pub fn counts(&self, cell: usize) -> &[u64; BlockUse::COUNT] {
        &self.counts[cell]
    }

    /// Returns the number of blocks of each kind in all cells.
    pub fn totals(&self) -> [u64; BlockUse::COUNT] {
        let mut totals = [0; BlockUse::COUNT];
        for counts in &self.counts {
            totals.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
        }
        totals
    }

    /// Counts blocks, except those past the end of the disk. Returns the number of these.
    pub(crate) fn add(&mut self, extent: Extent) -> u64 {
        let end = extent.start.saturating_add(extent.len);
        let inside = end.min(self.blocks);
        let mut at = extent.start;
        while at < inside {
            let cell = at / self.cell_blocks;
            let next = (cell + 1).saturating_mul(self.cell_blocks).min(inside);
            self.counts[cell as usize][extent.kind as usize] += next - at;
            at = next;
        }
        end - inside.max(extent.start.min(end))
    }

    /// Makes the counts of each cell add up to its size: missing blocks become unknown, surplus blocks are subtracted
    /// from the most frequent kinds. Returns the number of unknown and of surplus blocks.
    pub(crate) fn settle(&mut self) -> (u64, u64) {
        let (mut unknown, mut twice) = (0, 0);
        for cell in 0..self.len() {
            let size = self.range(cell);
            let size = size.end - size.start;
            let counts = &mut self.counts[cell];
            let told = counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
            if told <= size {
                counts[BlockUse::Unknown as usize] += size - told;
                unknown += size - told;
                continue;
            }
            let mut left = told - size;
            twice += left;
            while left > 0 {
                let Some(most) = counts.iter_mut().max() else { break };
                let part = left.min(*most);
                *most -= part;
                left -= part;
            }
        }
        (unknown, twice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(cells: &mut Cells, start: u64, len: u64, kind: BlockUse) -> u64 {
        cells.add(Extent { start, len, kind })
    }

    #[test]
    fn runs_are_counted_in_the_cells_they_lie_in() {
        let mut cells = Cells::new(100, 4);
        assert_eq!((cells.len(), cells.cell_blocks(), cells.range(3)), (4, 32, 96..100));
        assert_eq!(add(&mut cells, 20, 40, BlockUse::Data), 0);
        assert_eq!(add(&mut cells, 0, 20, BlockUse::Headers), 0);
        assert_eq!(add(&mut cells, 60, 40, BlockUse::Free), 0);
        let data: Vec<u64> = (0..4).map(|at| cells.counts(at)[BlockUse::Data as usize]).collect();
        assert_eq!(data, [12, 28, 0, 0]);
        assert_eq!(cells.settle(), (0, 0));
        assert_eq!(cells.totals().iter().sum::<u64>(), 100);
    }

    #[test]
    fn there_are_no_more_cells_than_blocks_and_the_last_may_be_small() {
        assert_eq!(Cells::new(10, 4096).len(), 10);
        let cells = Cells::new(10, 4);
        assert_eq!((cells.len(), cells.range(3)), (4, 9..10));
        assert_eq!(Cells::new(0, 4).len(), 1);
        assert_eq!((Cells::new(90, 4).cell_blocks(), Cells::new(101, 4).cell_blocks()), (24, 32));
        assert_eq!(Cells::new(u64::MAX, 1).len(), 1);
        let vast = Cells::new(u64::MAX, 7);
        assert_eq!(vast.range(vast.len() - 1).end, u64::MAX);
    }

    #[test]
    fn missing_blocks_are_unknown_and_excess_blocks_are_ignored() {
        let mut cells = Cells::new(32, 2);
        assert_eq!(add(&mut cells, 0, 4, BlockUse::Data), 0);
        for _ in 0..3 {
            add(&mut cells, 16, 16, BlockUse::Data);
        }
        add(&mut cells, 16, 3, BlockUse::Inodes);
        assert_eq!(cells.settle(), (12, 35));
        assert_eq!(cells.counts(0)[BlockUse::Unknown as usize], 12);
        for cell in 0..2 {
            assert_eq!(cells.counts(cell).iter().sum::<u64>(), 16);
        }
        assert_eq!(cells.counts(1)[BlockUse::Inodes as usize], 3);
    }

    #[test]
    fn extents_past_the_end_are_reported() {
        let mut cells = Cells::new(20, 2);
        assert_eq!(add(&mut cells, 15, 10, BlockUse::Data), 5);
        assert_eq!(add(&mut cells, 30, 10, BlockUse::Data), 10);
        assert_eq!(add(&mut cells, u64::MAX, 10, BlockUse::Data), 0);
        assert_eq!(cells.totals()[BlockUse::Data as usize], 5);
    }
}
