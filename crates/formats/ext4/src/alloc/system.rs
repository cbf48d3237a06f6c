//! The blocks that no file can use: superblocks, descriptors, bitmaps and inode tables.

use std::ops::Range;

use crate::alloc::groups::Groups;
use crate::format::address::{Block, Group};
use crate::format::geometry::Geometry;
use crate::format::group::GroupDescriptor;

/// Disjoint ranges of blocks in ascending order.
pub(crate) struct SystemZone {
    ranges: Vec<(u64, u64)>,
}

impl SystemZone {
    pub(crate) fn new(geometry: &Geometry, groups: &Groups) -> Self {
        Self::of(geometry, |group| Some(groups.places(group)))
    }

    /// Like [`Self::new`], but takes the descriptors from `places`, which returns `None` for unknown ones.
    pub(crate) fn of(
        geometry: &Geometry,
        places: impl Fn(Group) -> Option<GroupDescriptor>,
    ) -> Self {
        let mut ranges = Vec::new();
        let mut add = |start: Block, len: u64| {
            if len > 0 {
                ranges.push((start.0, start.plus(len).0));
            }
        };
        for group in (0..geometry.groups_count).map(Group) {
            let base = geometry.base_metadata(group);
            add(base.start, base.end.0.saturating_sub(base.start.0));
            let Some(desc) = places(group) else { continue };
            add(desc.block_bitmap, 1);
            add(desc.inode_bitmap, 1);
            add(desc.inode_table, u64::from(geometry.itable_blocks()));
        }
        ranges.sort_unstable();
        // Join adjacent ranges: with flex_bg, hundreds of tables become one range.
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (start, end) in ranges {
            match joined.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => joined.push((start, end)),
            }
        }
        joined.shrink_to_fit();
        Self { ranges: joined }
    }

    /// Returns the parts of these ranges inside `blocks`, in ascending order.
    pub(crate) fn within(&self, blocks: Range<Block>) -> impl Iterator<Item = Range<Block>> + '_ {
        let first = self.ranges.partition_point(|range| range.1 <= blocks.start.0);
        let parts = self.ranges[first..].iter().take_while(move |range| range.0 < blocks.end.0);
        parts.map(move |range| Block(range.0).max(blocks.start)..Block(range.1).min(blocks.end))
    }

    /// Returns whether any of `len` blocks from `start` on belongs to the file system itself.
    pub(crate) fn overlaps(&self, start: Block, len: u64) -> bool {
        let end = start.plus(len).0;
        let after = self.ranges.partition_point(|range| range.0 < end);
        after > 0 && self.ranges[after - 1].1 > start.0
    }
}
