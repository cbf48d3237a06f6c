//! Space estimate of a source, computed from its entries alone.
//!
//! A build that computes the image size reads the source once, estimates, and creates the image once. An inaccurate
//! estimate is corrected: the image shows the actual use, and the build is repeated. The estimate must be close in
//! nearly all cases and must depend only on entries and options.

mod ext4;
mod splits;
mod tree;
mod xfs;

pub(super) use ext4::Ext4Estimate;
pub(super) use xfs::XfsEstimate;

use import::{DataRun, Entry};

/// Space requirements of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Needed {
    /// Blocks in addition to those of an empty file system.
    pub(super) blocks: u64,
    /// Inodes in addition to those of an empty file system.
    pub(super) inodes: u64,
}

/// Estimator that is fed with entries.
pub(super) trait Estimate {
    /// Adds one entry.
    fn add(&mut self, entry: &Entry);

    /// Returns the requirements of all entries so far.
    fn needed(&self) -> Needed;
}

/// Returns the number of blocks in data runs, and the number of contiguous ranges, each of which needs a mapping.
fn blocks_and_ranges(runs: &[DataRun], block_size: u64) -> (u64, u64) {
    let (mut blocks, mut ranges, mut end) = (0_u64, 0_u64, None);
    for run in runs {
        let first = run.offset / block_size;
        let last = run.offset.saturating_add(run.len.saturating_sub(1)) / block_size;
        let from = end.map_or(first, |end: u64| first.max(end));
        ranges += u64::from(end.is_none_or(|end| first > end));
        blocks = blocks.saturating_add((last + 1).saturating_sub(from));
        end = Some(last + 1);
    }
    (blocks, ranges)
}

/// Returns the stored part of an attribute name, after the first dot.
fn stored_name(name: &[u8]) -> &[u8] {
    let dot = name.iter().position(|&byte| byte == b'.');
    dot.map_or(name, |dot| &name[dot + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_two_runs_touch_counts_once() {
        let run = |offset, len| DataRun { offset, len };
        assert_eq!(blocks_and_ranges(&[], 4096), (0, 0));
        assert_eq!(blocks_and_ranges(&[run(0, 1)], 4096), (1, 1));
        assert_eq!(blocks_and_ranges(&[run(0, 5000), run(5500, 10)], 4096), (2, 1));
        assert_eq!(blocks_and_ranges(&[run(0, 4096), run(4096, 1)], 4096), (2, 1));
        assert_eq!(blocks_and_ranges(&[run(0, 4096), run(8192, 8193)], 4096), (4, 2));
        assert!(blocks_and_ranges(&[run(1, u64::MAX)], 1024).0 > 1 << 50);
    }
}
