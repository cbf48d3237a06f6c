//! Changing the size of a file system in place.
//!
//! New metadata past the old end is written first. Everything that defines the size (the superblock, descriptors,
//! bitmaps of groups that are cut, the resize inode) changes in one transaction of the journal, so a crash leaves
//! either the old or the new size.

mod commit;
mod draft;
mod finish;
mod groups;
mod grow;
mod inline;
mod journal;
mod least;
mod map;
mod mover;
mod renumber;
mod reserved;
mod shrink;
mod target;
mod usage;

use std::sync::Arc;

use disk::BlockDevice;
use vfs::Result;

pub use grow::{Grown, grow, plan_growth};
pub use least::SizeRequest;
pub use shrink::{Shrunk, plan_shrinking, shrink};

use crate::params::{Params, read_superblock};
use crate::{Ext4, OpenOptions};

/// Size of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Number of blocks.
    pub blocks: u64,
    /// Block size in bytes.
    pub block_size: u32,
    /// Number of block groups.
    pub groups: u32,
    /// Number of inodes.
    pub inodes: u32,
}

impl Size {
    fn of(params: &Params) -> Self {
        let geometry = &params.geometry;
        Self {
            blocks: geometry.blocks_count,
            block_size: geometry.block_size(),
            groups: geometry.groups_count,
            inodes: geometry.inodes_count,
        }
    }

    /// Returns the size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.blocks * self.block_size as u64
    }
}

/// Opens and closes the image for writing, which replays the journal and processes orphans. Fails if the image cannot
/// be changed.
fn open_and_close(device: &Arc<dyn BlockDevice>) -> Result<()> {
    Ext4::open_writable(device.clone(), &OpenOptions::default())?.close()
}

/// Returns the size of a file system according to its superblock.
///
/// # Errors
/// `Corrupt` if there is none; if the device fails.
pub fn size(device: &dyn BlockDevice) -> Result<Size> {
    Ok(Size::of(&Params::of(read_superblock(device)?)))
}
