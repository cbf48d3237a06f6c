//! Access to on-disk structures, for programs that show the internals of an image.

use vfs::hint::{Advice, Hint, Setting};
use vfs::{Error, Ino, Result};

use crate::XfsCore;
use crate::format::address::{AgBlock, AgNumber, Block, FileBlock};
use crate::format::ag::sector_place;
use crate::format::geometry::Geometry;
use crate::format::inode::{Fork, Inode};
use crate::map::{self, Place};

/// A run of blocks of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// First block in the fork.
    pub first: FileBlock,
    /// Number of blocks, at least 1; a hole at the end extends to [`FileBlock::END`].
    pub len: u64,
    /// First block on the device; `None` for a hole.
    pub start: Option<Block>,
    /// True if it is unwritten and reads as zeros.
    pub unwritten: bool,
}

impl XfsCore {
    /// Returns the geometry of the file system.
    pub fn geometry(&self) -> &Geometry {
        &self.volume.geometry
    }

    /// Returns the byte offset on the device of a header sector of a group: 0 is the superblock, 1 the AGF, 2 the AGI,
    /// 3 the AGFL.
    pub fn header_byte(&self, ag: AgNumber, sector: u32) -> u64 {
        let (block, offset) = sector_place(self.geometry(), sector);
        let block = self.geometry().block_of(ag, AgBlock(block));
        self.geometry().byte_of(block) + offset as u64
    }

    /// Returns the byte offset on the device of an inode's slot; `None` if no inode can have this number.
    pub fn inode_byte(&self, ino: Ino) -> Option<u64> {
        let (ag, ag_ino) = self.geometry().split_ino(ino)?;
        let (block, offset) = self.geometry().inode_place(ag_ino);
        Some(self.geometry().byte_of(self.geometry().block_of(ag, block)) + offset as u64)
    }

    /// Returns the bytes of an inode's slot, verified.
    ///
    /// # Errors
    /// `NotFound` if the inode is free; `Corrupt` if it is damaged.
    pub fn inode(&self, ino: Ino) -> Result<Inode> {
        operations::deferred_create::flush_file(self, ino)?;
        let _lock = self.locks.shared(ino);
        Ok(self.load(ino)?.inode)
    }

    /// Returns the run of a fork's blocks that starts at `first`. The fork must have an extent list or tree.
    ///
    /// # Errors
    /// `NotFound` if the inode is free; `Corrupt` if its map is damaged on the path to `first`.
    pub fn block_run(&self, ino: Ino, fork: Fork, first: FileBlock) -> Result<BlockRun> {
        let _lock = self.locks.shared(ino);
        let handle = self.load(ino)?;
        if map::is_realtime(&handle, fork) {
            let what = format!("the map of inode {ino}, whose data is on the realtime device");
            return Err(Error::unsupported(
                what,
                Advice::before("read the file with ", Hint::Use(Setting::REALTIME_DEVICE)),
            ));
        }
        let run = map::run_at(&mut &*self, &handle, fork, first)?;
        let (start, unwritten) = match run.place {
            Place::Written(start) => (Some(start), false),
            Place::Unwritten(start) => (Some(start), true),
            Place::Hole => (None, false),
        };
        let start = start.map(|start| self.geometry().device_block(start));
        Ok(BlockRun { first, len: run.len, start, unwritten })
    }
}
