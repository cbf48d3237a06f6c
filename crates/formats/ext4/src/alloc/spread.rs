//! Choice of groups for top-level directories.

use std::sync::atomic::{AtomicU32, Ordering};

use super::groups::Groups;
use crate::format::address::Group;
use crate::format::geometry::Geometry;

/// Spreads directories over groups, so that there is space near each directory for its later contents.
#[derive(Default)]
pub(crate) struct Spread {
    last: AtomicU32,
}

impl Spread {
    /// Returns the next group with at least the average number of free inodes and free blocks.
    pub(crate) fn next_group(&self, groups: &Groups, geometry: &Geometry) -> Group {
        let (clusters, inodes) = groups.estimated_totals();
        let count = u64::from(geometry.groups_count);
        let start = self.last.load(Ordering::Relaxed).wrapping_add(1) % geometry.groups_count;
        let chosen = groups.from(Group(start)).find(|&group| {
            u64::from(groups.free_inodes(group)) >= inodes / count
                && u64::from(groups.free_blocks(group)) >= clusters / count
        });
        let chosen = chosen.unwrap_or(Group(start));
        self.last.store(chosen.0, Ordering::Relaxed);
        chosen
    }
}
