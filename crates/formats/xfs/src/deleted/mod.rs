//! Search for deleted inodes and names.
//!
//! - `logged` collects the images of inodes and the names of directories in the whole area of the log.
//! - `chunks` reports inodes that are not in use, in inode chunks and in free blocks.
//! - `maps` finds their contents.
//! - `names` finds names in the unused ranges of directories and in free blocks.
//!
//! Freeing an inode clears its mode, size, link count and count of extents, and increments its generation. The area after
//! the core is not cleared, so the extent list or the root of the extent tree usually survives, without its length.
//! The log has the cleared fields if it still contains an older image. If all inodes of a chunk are freed, the chunk is
//! freed, too, and its last images are often not written.

mod chunks;
mod logged;
mod maps;
mod names;

use std::ops::ControlFlow;

use disk::BlockDevice;
use vfs::Result;
use vfs::deleted::{DeletedScope, DeletedSink};

use crate::XfsCore;
use crate::format::address::Block;
use logged::LoggedInodes;

/// Reports deleted inodes and names of a file system that is open for reading. `evidence` is its device as found, before
/// the log was replayed in memory. Damage is reported as a remark.
pub fn find(
    fs: &XfsCore,
    evidence: &dyn BlockDevice,
    scope: DeletedScope,
    sink: &mut dyn DeletedSink,
) {
    let budget = fs.geometry().blocks.saturating_mul(2);
    let mut search = Search { fs, evidence, sink, logged: LoggedInodes::default(), budget };
    // The sink knows whether it stopped the search.
    let _ = search.run(scope);
}

/// A running search.
struct Search<'s> {
    fs: &'s XfsCore,
    evidence: &'s dyn BlockDevice,
    sink: &'s mut dyn DeletedSink,
    logged: LoggedInodes,
    /// Number of directory and map blocks that may still be read.
    budget: u64,
}

impl Search<'_> {
    fn run(&mut self, scope: DeletedScope) -> ControlFlow<()> {
        self.read_log();
        let groups = u64::from(self.fs.geometry().ag_count);
        let total = groups + if scope.free_blocks { groups } else { 0 };
        for ag in self.fs.geometry().ags() {
            self.chunks(ag);
            self.sink.progress(u64::from(ag.0) + 1, total)?;
        }
        if scope.free_blocks {
            for ag in self.fs.geometry().ags() {
                self.free_blocks(ag);
                self.sink.progress(groups + u64::from(ag.0) + 1, total)?;
            }
        }
        self.rest();
        ControlFlow::Continue(())
    }

    /// Reads a block of the device as found.
    fn block(&self, block: Block) -> Result<Vec<u8>> {
        self.read(self.evidence, block, 1)
    }

    /// Reads a block in the replayed state.
    fn current_block(&self, block: Block) -> Result<Vec<u8>> {
        self.read(&**self.fs.device(), block, 1)
    }

    fn read(&self, device: &dyn BlockDevice, block: Block, count: usize) -> Result<Vec<u8>> {
        let geometry = self.fs.geometry();
        let mut bytes = vec![0; geometry.block_size() * count];
        device.read_at(geometry.byte_of(block), &mut bytes).map_err(vfs::Error::Device)?;
        Ok(bytes)
    }

    /// Takes blocks from the budget. Returns false if it is used up.
    fn spend(&mut self, blocks: u64) -> bool {
        match self.budget.checked_sub(blocks) {
            Some(left) => {
                self.budget = left;
                true
            }
            None => false,
        }
    }

    fn remark(&mut self, what: std::fmt::Arguments<'_>, error: &dyn std::fmt::Display) {
        self.sink.remark(format!("{what}: {error}"));
    }
}
