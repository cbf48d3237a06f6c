//! Recording what a mount reads, for the order of a publication.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::publish::record::RecordingReads;
use blockdev::BlockDevice;

use crate::{Error, Result};

/// A record that is being made. The file is opened at the start: whoever serves a mount may be in another directory later.
pub(crate) struct Recording {
    reads: Arc<RecordingReads>,
    file: File,
    path: PathBuf,
}

impl Recording {
    /// Begins a record of what is read of `device`, which is to be read through the device that this gives.
    pub(crate) fn start(
        device: Arc<dyn BlockDevice>,
        path: &Path,
    ) -> Result<(Arc<dyn BlockDevice>, Self)> {
        let file = File::create(path).map_err(|e| Error::host("make", path, e))?;
        let reads = Arc::new(RecordingReads::new(device));
        Ok((Arc::clone(&reads) as _, Self { reads, file, path: path.to_owned() }))
    }

    /// Writes the record.
    pub(crate) fn finish(self) -> Result<()> {
        let mut out = BufWriter::new(&self.file);
        let written = self.reads.write_to(&mut out).and_then(|()| out.flush());
        written.map_err(|e| Error::host("write", &self.path, e))
    }
}
