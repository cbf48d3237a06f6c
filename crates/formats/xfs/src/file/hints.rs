//! Placement of the data of new files: after that of the previous file, so that small files are close together, and in
//! another group once the inode's group is full.

use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;
use engine::locks::atomic::AtomicU64;

use crate::format::address::FsBlock;
use crate::format::geometry::Geometry;
use crate::inode::Handle;

/// The most recent allocation of data, by group of the inodes.
pub(crate) struct Hints {
    /// The block after the last allocation; 0, which no file can have, for none yet. Each is on its own cache line,
    /// because threads work in different groups.
    behind: Box<[CachePadded<AtomicU64>]>,
}

impl Hints {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        Self { behind: geometry.ags().map(|_| CachePadded::default()).collect() }
    }

    fn of(&self, geometry: &Geometry, file: &Handle) -> Option<&CachePadded<AtomicU64>> {
        let (ag, _) = geometry.split_ino(file.ino())?;
        self.behind.get(ag.0 as usize)
    }

    /// Returns the best place for the first block of a file; `None` if no data was allocated nearby yet.
    pub(crate) fn data_goal(&self, geometry: &Geometry, file: &Handle) -> Option<FsBlock> {
        let hint = self.of(geometry, file)?.load(Ordering::Relaxed);
        let goal = FsBlock(hint);
        (hint != 0 && geometry.contains(goal, 1)).then_some(goal)
    }

    /// Records that data of a file was allocated just before `behind`.
    pub(crate) fn note_data(&self, geometry: &Geometry, file: &Handle, behind: FsBlock) {
        if let Some(hint) = self.of(geometry, file) {
            hint.store(behind.0, Ordering::Relaxed);
        }
    }
}
