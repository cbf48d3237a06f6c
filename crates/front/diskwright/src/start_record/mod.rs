//! Records of the ranges that a start reads first: mounts write them, and publications and bundles are ordered by them.

#[cfg(all(feature = "mount", target_os = "linux"))]
mod recording;

use std::fs::File;
use std::io::BufReader;
use std::ops::Range;
use std::path::Path;

use remote::publish::record::{self, RecordError};

use crate::{Error, Result};

#[cfg(all(feature = "mount", target_os = "linux"))]
pub(crate) use recording::Recording;

/// Reads the record of a start.
pub(crate) fn read(path: &Path) -> Result<Vec<Range<u64>>> {
    let file = File::open(path).map_err(|e| Error::host("open", path, e))?;
    record::parse(BufReader::new(file)).map_err(|error| match error {
        RecordError::Io(e) => Error::host("read", path, e),
        error => Error::Usage(format!(
            "{}: cannot record the blocks read at startup: {error}",
            crate::text::shown(path)
        )),
    })
}
