//! Files and owners of blocks of realtime groups.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vfs::Ino;

use super::super::owners::{Claim, Owners};
use crate::format::address::AgNumber;
use crate::format::geometry::Geometry;
use crate::format::inode::Inode;
use crate::format::metafile::MetafileType;

/// The files of a group, by type.
pub(super) type GroupFiles = HashMap<MetafileType, (Ino, Inode)>;

/// The realtime groups of an image.
pub(in super::super) struct Groups {
    /// The realtime device, with the groups of the section as allocation groups.
    pub(super) geometry: Geometry,
    pub(super) owners: Owners,
    /// Files by group.
    pub(super) files: Vec<GroupFiles>,
    /// True for each group whose reverse map could not be read.
    pub(super) is_map_unknown: Vec<AtomicBool>,
    /// Number of blocks in the records of each zone's reverse map; `None` for groups that are not zones.
    pub(super) mapped_blocks: Option<Vec<AtomicU64>>,
}

impl Groups {
    /// Claims blocks of a group for an owner without a file.
    pub(super) fn claim(&self, ag: u32, start: u32, len: u32, owner: u64) {
        self.owners.claim(Claim { ag, start, len, owner, offset: 0 });
    }

    /// Returns whether the reverse map of a group matches the claims, or does not exist or is unknown.
    pub(super) fn is_map_right(&self, group: AgNumber) -> bool {
        self.is_map_unknown[group.0 as usize].load(Ordering::Relaxed)
            || self.owners.is_map_right(group)
    }
}
