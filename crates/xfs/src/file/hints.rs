//! Where the data of new files goes: behind that of the file before, so that small files lie close
//! together, and in another group once the inode's own is full.

use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;
use transaction::locks::atomic::AtomicU64;

use crate::format::address::FsBlock;
use crate::format::geometry::Geometry;
use crate::inode::Handle;

/// Where data was allocated last, by group of the inodes.
pub(crate) struct Hints {
    /// Each on a cache line of its own, because threads work in different groups. The block behind it; 0, which no file can have, for none yet.
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

    /// Where the first block of a file is best; `None` if no data was allocated nearby yet.
    pub(crate) fn data_goal(&self, geometry: &Geometry, file: &Handle) -> Option<FsBlock> {
        let hint = self.of(geometry, file)?.load(Ordering::Relaxed);
        let goal = FsBlock(hint);
        (hint != 0 && geometry.contains(goal, 1)).then_some(goal)
    }

    /// Notes that data of a file was allocated before `behind`.
    pub(crate) fn note_data(&self, geometry: &Geometry, file: &Handle, behind: FsBlock) {
        if let Some(hint) = self.of(geometry, file) {
            hint.store(behind.0, Ordering::Relaxed);
        }
    }
}
