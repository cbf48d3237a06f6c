//! Resets the log to an empty one, after all LSNs in the image.
//!
//! LSNs of damaged structures may be random. Implausible cycles are ignored, because the log would start close to the
//! last possible cycle. Such LSNs are reset later (`lsn`).

use std::sync::Arc;

use operations::repair::Staging;
use vfs::Result;
use vfs::check::Options;

use crate::check::survey::Survey;
use crate::log;
use crate::volume::read_superblock;

/// Writes a clean log that continues after all plausible LSNs.
pub(super) fn restart(staging: &Arc<Staging>) -> Result<()> {
    let sb = read_superblock(&**staging)?;
    let survey = Survey::new(Arc::clone(staging) as _, Options::default().threads)?;
    log::write_clean(&**staging, &sb, survey.lsn_plausible_max().cycle + 1)
}
