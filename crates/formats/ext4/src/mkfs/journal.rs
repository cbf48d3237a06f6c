//! Size and position of the journal.

use vfs::{Error, Result};

use super::options::Options;
use super::space::Space;
use super::tuning::{JOURNAL_BLOCKS_MAX, Position};
use crate::format::address::{Block, Group};
use crate::format::geometry::Geometry;
use crate::format::jbd2;

/// Size and place of a new journal in the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewJournal {
    /// Size in bytes, without an area for fast commits of the given size. By default it follows from that of the image.
    pub bytes: Option<u64>,
    /// Size of the area for fast commits in bytes, with `fast_commit`. By default it is a part of the journal.
    pub fast_commit_bytes: Option<u64>,
    /// Position of the first block, or the next free one.
    pub position: Option<Position>,
}

/// Journal blocks by file system size in blocks: the first entry with a larger limit applies.
const SIZES: [(u64, u32); 8] = [
    (32 << 10, 1 << 10),
    (256 << 10, 4 << 10),
    (512 << 10, 8 << 10),
    (4 << 20, 16 << 10),
    (8 << 20, 32 << 10),
    (16 << 20, 64 << 10),
    (32 << 20, 128 << 10),
    (u64::MAX, 256 << 10),
];

/// Returns the number of journal blocks, as requested or by the size of the file system.
///
/// # Errors
/// `Invalid` if the requested number is out of range or more than half of the free space.
pub(super) fn blocks(options: &Options, geometry: &Geometry, free: u64) -> Result<u32> {
    let Some(bytes) = options.journal_bytes else { return Ok(default_blocks(geometry)) };
    blocks_of(bytes, geometry, free)
}

/// Returns the default number of journal blocks for a file system of this size.
pub(crate) fn default_blocks(geometry: &Geometry) -> u32 {
    let size = SIZES.iter().find(|(limit, _)| geometry.blocks_count < *limit);
    size.map_or(jbd2::BLOCKS_MIN, |(_, blocks)| *blocks)
}

/// Converts the size of a journal to blocks.
///
/// # Errors
/// Like [`blocks`].
pub(crate) fn blocks_of(bytes: u64, geometry: &Geometry, free: u64) -> Result<u32> {
    let blocks = bytes >> geometry.block_size_log;
    if !(u64::from(jbd2::BLOCKS_MIN)..=JOURNAL_BLOCKS_MAX).contains(&blocks) {
        return Err(Error::Invalid("a journal has 1024 to 10,240,000 blocks"));
    }
    if blocks > free / 2 {
        return Err(Error::Invalid("the journal would use more than half of the free space"));
    }
    Ok(blocks as u32)
}

/// Returns the preferred position of the journal: in the middle, in the emptiest of a few groups, so that it is
/// contiguous and seeks to it are short.
pub(super) fn goal(geometry: &Geometry, space: &Space) -> Block {
    let free = |group: u32| {
        let start = geometry.first_block(Group(group)).0;
        let blocks = u64::from(geometry.blocks_in(Group(group)));
        blocks - space.taken_in(start..start + blocks)
    };
    let last = geometry.groups_count - 1;
    let first = u64::from(geometry.first_data_block);
    let middle = geometry.group_of(Block(first + (geometry.blocks_count - first) / 2)).0;
    let candidates = if geometry.flex_groups > 1 && middle > geometry.flex_groups {
        let flex_start = middle & !(geometry.flex_groups - 1);
        let start = (flex_start..=last).find(|&group| free(group) > 0).unwrap_or(0);
        start..=last.min(start + 1)
    } else {
        middle.saturating_sub(1)..=last.min(middle + 1)
    };
    // Prefer the first of equally empty groups.
    let best = candidates.rev().max_by_key(|&group| free(group)).unwrap_or(0);
    geometry.first_block(Group(best))
}
