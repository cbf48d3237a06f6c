//! Contents of regular files, as far as XFS has its own way with them, and targets of symbolic links. What
//! it shares with other formats is in [`operation::data`], whose questions [`data`] answers.

mod clone;
mod data;
mod hints;
mod share;
mod symlink;
#[cfg(test)]
mod tests;

use crate::Xfs;

pub(crate) use hints::Hints;
pub(crate) use symlink::readlink;

/// Runs that one operation maps or frees at most, where the log is large.
const CHANGES_PER_OP_MAX: usize = 128;

/// Runs that one operation may map or free whatever the log.
const CHANGES_PER_OP_MIN: usize = 4;

/// Shares of the largest checkpoint that are blocks for one run: each may change some eight blocks of
/// trees, and what is open when a checkpoint is about to be closed must fit an eighth of it, of several
/// threads.
const CHANGE_SHARES: usize = 256;

/// Largest size of a file in bytes.
const SIZE_MAX: u64 = i64::MAX as u64;

impl Xfs {
    /// Runs that one operation maps or frees at most, so that several of them fit what the log has left
    /// for operations that are open when a checkpoint is full.
    pub(crate) fn changes_per_op(&self) -> u32 {
        let fits = self.engine.log_blocks_max() / CHANGE_SHARES;
        fits.clamp(CHANGES_PER_OP_MIN, CHANGES_PER_OP_MAX) as u32
    }
}
