//! Making the log an empty one, behind all that says when it was written.

use std::sync::Arc;

use ::repair::Staging;
use check::Options;
use vfs::{Corruption, Result};

use crate::check::survey::Survey;
use crate::log;
use crate::volume::read_superblock;

/// A cycle of the log that is too late for another one to come.
const CYCLE_MAX: u32 = u32::MAX - 16;

/// Writes a log that is clean and goes on behind all that says when it was written.
pub(super) fn restart(staging: &Arc<Staging>) -> Result<()> {
    let sb = read_superblock(&**staging)?;
    let survey = Survey::new(Arc::clone(staging) as _, Options::default().threads)?;
    let latest = (survey.lsn_max_real() >> 32) as u32;
    if latest >= CYCLE_MAX {
        return Err(Corruption::new("log", "no cycle is left").into());
    }
    log::write_clean(&**staging, &sb, latest + 1)
}
