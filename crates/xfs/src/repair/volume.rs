//! What belongs to the file system and not to one file.

use std::sync::Arc;

use ::repair::{Fix, Staging};
use vfs::Result;

use super::Job;

/// Where everything lies: superblocks, headers or descriptors of groups.
pub(super) const PLACES: &[Fix<Job>] = &[];
/// What is free and what is not.
pub(super) const SPACE: &[Fix<Job>] = &[];
/// What is counted, when everything else is right.
pub(super) const COUNTS: &[Fix<Job>] = &[];

/// See [`repair::Repairer::begin`].
pub(super) fn begin(_staging: &Arc<Staging>) -> Result<()> {
    Ok(())
}

/// See [`repair::Repairer::finish`].
pub(super) fn finish(_staging: &Arc<Staging>) -> Result<()> {
    Ok(())
}
