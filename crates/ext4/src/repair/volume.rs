//! What belongs to the file system and not to one file.

use std::sync::Arc;

use ::repair::{Fix, Staging};
use vfs::Result;

use super::{Job, space};
use crate::check::codes;

/// Where everything lies: superblocks, headers or descriptors of groups.
pub(super) const PLACES: &[Fix<Job>] = &[];
/// What is free and what is not.
pub(super) const SPACE: &[Fix<Job>] = &[Fix {
    codes: &[
        codes::BLOCK_BITMAP_CHECKSUM,
        codes::BLOCK_BITMAP_FREE,
        codes::BLOCK_BITMAP_USED,
        codes::BLOCK_BITMAP_PADDING,
        codes::INODE_BITMAP_CHECKSUM,
        codes::INODE_BITMAP_FREE,
        codes::INODE_BITMAP_USED,
        codes::INODE_BITMAP_PADDING,
        codes::GROUP_FREE_BLOCKS,
        codes::GROUP_FREE_INODES,
        codes::GROUP_DIRECTORIES,
    ],
    mend: space::mend_groups,
}];
/// What is counted, when everything else is right.
pub(super) const COUNTS: &[Fix<Job>] = &[Fix {
    codes: &[codes::SUPERBLOCK_FREE_BLOCKS, codes::SUPERBLOCK_FREE_INODES],
    mend: space::mend_totals,
}];

/// See [`repair::Repairer::begin`].
pub(super) fn begin(_staging: &Arc<Staging>) -> Result<()> {
    Ok(())
}

/// See [`repair::Repairer::finish`].
pub(super) fn finish(_staging: &Arc<Staging>) -> Result<()> {
    Ok(())
}
