//! Making the log an empty one, behind all that says when it was written.
//!
//! Damaged structures may have noise for that place. A cycle that no log reaches does not count: the log would
//! begin close to the last cycle there is. Such a place is found and reset later (`lsn`).

use std::sync::Arc;

use ::repair::Staging;
use check::Options;
use vfs::Result;

use crate::check::survey::Survey;
use crate::log;
use crate::volume::read_superblock;

/// Writes a log that is clean and goes on behind all places that a log can reach.
pub(super) fn restart(staging: &Arc<Staging>) -> Result<()> {
    let sb = read_superblock(&**staging)?;
    let survey = Survey::new(Arc::clone(staging) as _, Options::default().threads)?;
    log::write_clean(&**staging, &sb, survey.lsn_plausible_max().cycle + 1)
}
