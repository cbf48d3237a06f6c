//! Changes of usage.

use crate::format::quota::{RESOURCES, Resource};

/// Inodes, and blocks of both sections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Delta {
    pub(super) blocks: i64,
    pub(super) inodes: i64,
    /// Blocks of the realtime section.
    pub(super) realtime: i64,
}

/// The change of the usage of one identifier.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsageChange {
    pub(super) kind: usize,
    pub(super) id: u32,
    pub(super) delta: Delta,
    /// True if it must not exceed a limit. A change of the owner may.
    pub(super) is_limited: bool,
}

impl Delta {
    pub(super) const fn is_zero(self) -> bool {
        self.blocks == 0 && self.inodes == 0 && self.realtime == 0
    }

    pub(super) fn add(&mut self, other: Self) {
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.inodes = self.inodes.saturating_add(other.inodes);
        self.realtime = self.realtime.saturating_add(other.realtime);
    }

    /// Returns the parts of it.
    pub(super) const fn by_resource(self) -> [(Resource, i64); RESOURCES] {
        [
            (Resource::Blocks, self.blocks),
            (Resource::Inodes, self.inodes),
            (Resource::RealtimeBlocks, self.realtime),
        ]
    }

    /// Returns the opposite change.
    pub(super) const fn negated(self) -> Self {
        Self {
            blocks: self.blocks.wrapping_neg(),
            inodes: self.inodes.wrapping_neg(),
            realtime: self.realtime.wrapping_neg(),
        }
    }
}
