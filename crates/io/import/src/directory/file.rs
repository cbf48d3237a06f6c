//! Regular files of a host directory, opened when their contents are read.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use super::family::{Root, state_of};
use crate::content::size_changed;
use crate::{FileId, SourceChange, SourceError, Time};

/// State that detects changes of a file since it was listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    pub(super) id: FileId,
    /// Size in bytes.
    pub(super) size: u64,
    pub(super) mtime: Time,
}

/// A regular file of the source, in the state when it was listed.
#[derive(Clone, Debug)]
pub(crate) struct HostFile {
    pub(super) root: Arc<Root>,
    pub(super) path: Box<[u8]>,
    state: FileStamp,
}

impl HostFile {
    pub(super) fn new(root: &Arc<Root>, path: &[u8], state: FileStamp) -> Self {
        Self { root: Arc::clone(root), path: path.into(), state }
    }

    /// Returns the host path for messages.
    pub(crate) fn host_path(&self) -> PathBuf {
        self.root.shown_path(&self.path)
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.state.size
    }

    /// Opens the file and checks that it has not changed since it was listed.
    pub(crate) fn open(&self) -> Result<File, SourceError> {
        let file = self.root.open_file(&self.path);
        let file = file.map_err(|e| SourceError::io("open", &self.host_path(), e))?;
        self.check(&file)?;
        Ok(file)
    }

    /// Checks that the open file has not changed since it was listed.
    pub(crate) fn check(&self, file: &File) -> Result<(), SourceError> {
        let found = state_of(file).map_err(|e| SourceError::io("read", &self.host_path(), e))?;
        if found == self.state {
            return Ok(());
        }
        Err(size_changed(&self.host_path(), self.state.size, found.size))
    }

    /// Returns the error for a file that ended early.
    pub(crate) fn shrunk(&self, file: &File) -> SourceError {
        let found = file.metadata().map_or(0, |metadata| metadata.len());
        if found == self.state.size {
            let change = SourceChange::Short { said: found };
            return SourceError::Changed { path: self.host_path(), change };
        }
        size_changed(&self.host_path(), self.state.size, found)
    }
}
