//! Access to on-disk structures for programs that display the internals of an image.

use vfs::{Ino, Result};

use crate::Ext4Core;
use crate::format::address::{Block, FileBlock};
use crate::format::geometry::Geometry;
use crate::inode::load_unlinked;
use crate::map::{self, Mapping};

/// A run of blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// First block in the file.
    pub first: FileBlock,
    /// Number of blocks, at least 1.
    pub len: u64,
    /// First block on the device; `None` for a hole.
    pub start: Option<Block>,
    /// True if the run was never written and reads as zeros.
    pub unwritten: bool,
}

impl Ext4Core {
    /// Returns the geometry of the file system.
    pub fn geometry(&self) -> &Geometry {
        &self.volume.geometry
    }

    /// Returns the run of an inode's blocks that starts at `first`, whatever the type of the inode. The contents must
    /// not be inline.
    ///
    /// # Errors
    /// `NotFound` if the inode is free; `Corrupt` if the block map is damaged on the path to the run.
    pub fn block_run(&self, ino: Ino, first: FileBlock) -> Result<BlockRun> {
        let _lock = self.locks.shared(ino);
        let run = map::run_at(&mut &*self, &load_unlinked(self, ino)?, first)?;
        let (start, unwritten) = match run.place {
            Mapping::Written(start) => (Some(start), false),
            Mapping::Unwritten(start) => (Some(start), true),
            Mapping::Hole => (None, false),
        };
        Ok(BlockRun { first, len: run.len, start, unwritten })
    }
}
