//! Changing the size of a file system in place.
//!
//! What the new size needs past the old end is written first. All that the size depends on (the superblock,
//! descriptors, bitmaps of groups that are cut, the resize inode) changes in one transaction of the journal, so a
//! crash leaves the old size or the new one.

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

use blockdev::BlockDevice;
use vfs::Result;

pub use grow::{Grown, grow, plan_growth};
pub use least::Wish;
pub use shrink::{Shrunk, plan_shrinking, shrink};

use crate::params::{Params, read_superblock};
use crate::{Ext4, OpenOptions};

/// How large a file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Block groups.
    pub groups: u32,
    /// Inodes.
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

    /// The size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.blocks * self.block_size as u64
    }
}

/// Has the journal replayed and orphans ended, as whoever changes an image does. What cannot be changed is refused.
fn open_and_close(device: &Arc<dyn BlockDevice>) -> Result<()> {
    Ext4::open_writable(device.clone(), &OpenOptions::default())?.close()
}

/// How large a file system is, as its superblock says.
///
/// # Errors
/// `Corrupt` if there is none; if the device fails.
pub fn size(device: &dyn BlockDevice) -> Result<Size> {
    Ok(Size::of(&Params::of(read_superblock(device)?)))
}
