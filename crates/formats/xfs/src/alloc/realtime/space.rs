//! The places of the bitmap and the summary on the data device.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use engine::Tag;
use vfs::{Corruption, Ino, Result};

use crate::format::address::{AgNumber, Block};
use crate::format::geometry::Geometry;
use crate::format::realtime::Realtime;
use crate::format::realtime::space::{SpaceFile, SpaceLayout};
use crate::kind::BlockKind;

/// Returns the group for a realtime group, or for group 0 of a section without groups: after all allocation groups.
pub(crate) const fn group_of(geometry: &Geometry, number: u32) -> AgNumber {
    AgNumber(geometry.ag_count + number)
}

/// The realtime section of an image that is open for changes.
pub(crate) struct RealtimeSection {
    pub(super) realtime: Realtime,
    /// Free space by group.
    pub(super) spaces: Vec<RealtimeSpace>,
    /// The group of the last allocation.
    pub(super) last_group: AtomicU32,
}

impl RealtimeSection {
    /// Returns the number of groups; 1 without groups.
    pub(crate) fn groups(&self) -> u32 {
        self.spaces.len() as u32
    }
}

/// The end of the last allocation, which the next file continues.
#[derive(Debug, Default)]
pub(super) struct Cursor(pub(super) AtomicU64);

/// A realtime group, or the section without groups.
pub(super) struct RealtimeSpace {
    pub(super) realtime: Realtime,
    pub(super) layout: SpaceLayout,
    pub(super) cursor: Cursor,
    /// One entry per block of the bitmap: 1 if all of its extents are free, otherwise unknown. Searches skip long
    /// runs of such blocks.
    pub(super) is_free: Box<[AtomicU8]>,
    /// Inodes with the trees of the group, if it has them.
    pub(super) rmap: Option<Ino>,
    pub(super) refcount: Option<Ino>,
    pub(super) bitmap: FileMap,
    pub(super) summary: FileMap,
}

/// The blocks of a file.
pub(super) struct FileMap {
    pub(super) ino: Ino,
    /// Runs without gaps: first logical block, first block of the device.
    pub(super) runs: Vec<(u64, Block)>,
    pub(super) blocks: u64,
}

impl FileMap {
    fn block(&self, at: u64) -> Option<Block> {
        if at >= self.blocks {
            return None;
        }
        let index = self.runs.partition_point(|(first, _)| *first <= at).checked_sub(1)?;
        let (first, start) = *self.runs.get(index)?;
        Some(Block(start.0 + (at - first)))
    }
}

impl RealtimeSpace {
    /// Returns the place of a block of a file, and its tag.
    pub(super) fn place(&self, file: SpaceFile, at: u64) -> Result<(Block, Tag)> {
        let (map, kind) = match file {
            SpaceFile::Bitmap => (&self.bitmap, BlockKind::RealtimeBitmap),
            SpaceFile::Summary => (&self.summary, BlockKind::RealtimeSummary),
        };
        let block = map.block(at).ok_or_else(|| {
            let damage = Corruption::new(file.name(), "number of blocks");
            damage.of_inode(map.ino.0).mismatch(map.blocks, at)
        })?;
        Ok((block, kind.of_inode(map.ino, at as u32)))
    }
}
