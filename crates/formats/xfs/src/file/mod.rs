//! Contents of regular files, where XFS differs from other formats, and targets of symbolic links. The common code is
//! in [`operations::data`], whose traits [`data`] implements.

mod clone;
mod data;
mod exchange;
mod hints;
mod realtime;
mod share;
mod symlink;
#[cfg(test)]
mod tests;

use crate::XfsCore;

pub(crate) use hints::Hints;
pub(crate) use symlink::readlink;

/// Maximum number of runs that one operation maps or frees, with a large log.
const CHANGES_PER_OP_MAX: usize = 128;

/// The same limit with the smallest log.
const CHANGES_PER_OP_MIN: usize = 4;

/// Blocks of the largest checkpoint for each run that one operation may map or free. Each run may change about eight
/// tree blocks. The open operations of several threads must fit into an eighth of a checkpoint that is about to be
/// closed.
const CHANGE_SHARES: usize = 256;

/// Maximum size of a file in bytes.
const SIZE_MAX: u64 = i64::MAX as u64;

impl XfsCore {
    /// Returns the maximum number of runs that one operation maps or frees. Several such operations fit into the part
    /// of the log for operations that are open when a checkpoint is full.
    pub(crate) fn changes_per_op(&self) -> u32 {
        let fits = self.engine.log_blocks_max() / CHANGE_SHARES;
        fits.clamp(CHANGES_PER_OP_MIN, CHANGES_PER_OP_MAX) as u32
    }
}
