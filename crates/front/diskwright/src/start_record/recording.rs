//! Recording of the ranges read by a mount.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::BlockDevice;
use remote::publish::record::RecordingReads;

use crate::replace::{Replace, Replacement};
use crate::{Error, Result};

/// Record in progress. The file is renamed into place when complete, in the directory that was opened at the start,
/// because a background mount changes its current directory. An existing link of that name is replaced and not
/// followed, because another user may have created it.
pub(crate) struct Recording {
    reads: Arc<RecordingReads>,
    file: Replacement,
    path: PathBuf,
}

impl Recording {
    /// Starts recording reads of `device`. Reads must use the returned device.
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
