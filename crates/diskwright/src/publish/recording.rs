//! Recording what a mount reads, for the order of a publication.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::publish::record::RecordingReads;
use blockdev::BlockDevice;

use crate::replace::{Replace, Replacement};
use crate::{Error, Result};

/// A record that is being made. The file gets its name when it is whole, in the directory that was opened at the start: a
/// mount in the background changes its directory. A link of that name is replaced and never followed: another user may
/// have put it there.
pub(crate) struct Recording {
    reads: Arc<RecordingReads>,
    file: Replacement,
    path: PathBuf,
}

impl Recording {
    /// Begins a record of what is read of `device`, which is to be read through the device that this gives.
    pub(crate) fn start(
        device: Arc<dyn BlockDevice>,
        path: &Path,
    ) -> Result<(Arc<dyn BlockDevice>, Self)> {
        let file = Replacement::create(path, Replace::Anything);
        let file = file.map_err(|refused| refused.at("make", path))?;
        let reads = Arc::new(RecordingReads::new(device));
        Ok((Arc::clone(&reads) as _, Self { reads, file, path: path.to_owned() }))
    }

    /// Writes the record.
    pub(crate) fn finish(self) -> Result<()> {
        let mut out = BufWriter::new(self.file.file());
        let written = self.reads.write_to(&mut out).and_then(|()| out.flush());
        drop(out);
        written.map_err(|e| Error::host("write", &self.path, e))?;
        self.file.keep().map_err(|refused| refused.at("make", &self.path))
    }
}
