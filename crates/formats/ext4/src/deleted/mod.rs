//! Search for deleted inodes and names.
//!
//! - `journal` indexes the images of blocks in the whole journal, also of transactions that replay skips.
//! - `images` finds the images of inodes in them.
//! - `table` compares inode tables with these images, and reports inodes that are not in use.
//! - `maps` finds the contents of such an inode. Its map blocks may survive in place or in the journal.
//! - `names` finds names in directories, in old images of directories and in free blocks.
//!
//! The replayed state determines the inodes and blocks in use. Deleted ones are on the device without replay, and in the
//! journal. All work
//! is bounded by the sizes of the inode tables, the directories and the journal, and by a budget of blocks.

mod images;
mod journal;
mod maps;
mod names;
mod table;

use std::collections::HashMap;
use std::ops::ControlFlow;

use disk::BlockDevice;
use vfs::deleted::{DeletedScope, DeletedSink};
use vfs::{Ino, Result};

use crate::Ext4Core;
use crate::format::address::Block;
use images::InodeImages;
use journal::JournalImages;

/// Reports deleted inodes and names of a file system that is open for reading. `evidence` is its device as found, before
/// the journal was replayed in memory. Damage is reported as a remark.
pub fn find(
    fs: &Ext4Core,
    evidence: &dyn BlockDevice,
    scope: DeletedScope,
    sink: &mut dyn DeletedSink,
) {
    let journal = match JournalImages::read(evidence, fs.superblock()) {
        Ok(journal) => journal,
        Err(error) => {
            sink.remark(format!("the journal was not searched: {error}"));
            JournalImages::default()
        }
    };
    let budget = fs.geometry().blocks_count.saturating_mul(2);
    let directories = HashMap::new();
    let images = InodeImages::default();
    let mut search = Search { fs, evidence, sink, journal, images, directories, budget };
    // The sink knows whether it stopped the search.
    let _ = search.run(scope);
}

/// Directory that a block belongs, or belonged, to.
#[derive(Clone, Copy, Debug)]
struct Owner {
    ino: Ino,
    is_encrypted: bool,
}

/// A running search.
struct Search<'s> {
    fs: &'s Ext4Core,
    evidence: &'s dyn BlockDevice,
    sink: &'s mut dyn DeletedSink,
    journal: JournalImages,
    images: InodeImages,
    /// Directories of blocks that have images in the journal.
    directories: HashMap<Block, Owner>,
    /// Number of directory and map blocks that may still be read.
    budget: u64,
}

impl Search<'_> {
    fn run(&mut self, scope: DeletedScope) -> ControlFlow<()> {
        self.images = InodeImages::find(self);
        let groups = u64::from(self.fs.geometry().groups_count);
        let total = groups + 1 + if scope.free_blocks { groups } else { 0 };
        for group in self.fs.geometry().groups() {
            self.group(group);
            self.sink.progress(u64::from(group.0) + 1, total)?;
        }
        self.rest();
        self.journaled_names();
        self.sink.progress(groups + 1, total)?;
        if scope.free_blocks {
            for group in self.fs.geometry().groups() {
                self.free_directory_blocks(group);
                self.sink.progress(groups + 2 + u64::from(group.0), total)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Reads a block of the device as found.
    fn block(&self, block: Block) -> Result<Vec<u8>> {
        read(self.evidence, self.fs, block)
    }

    /// Reads a block in the replayed state.
    fn current_block(&self, block: Block) -> Result<Vec<u8>> {
        read(&**self.fs.device(), self.fs, block)
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

fn read(device: &dyn BlockDevice, fs: &Ext4Core, block: Block) -> Result<Vec<u8>> {
    let geometry = fs.geometry();
    let mut bytes = vec![0; geometry.block_size() as usize];
    device.read_at(geometry.byte_of(block), &mut bytes).map_err(vfs::Error::Device)?;
    Ok(bytes)
}
