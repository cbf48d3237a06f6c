//! A host directory as a stream of entries, independent of the host.

use std::path::Path;
use std::sync::Arc;

use super::family::{Files, Root};
use super::found::Scanned;
use super::links::LinkedFiles;
use crate::{Entry, Options, Progress, Source, SourceError};

/// A directory and everything below it, including other mounted file systems. Names are sorted by their bytes, whatever
/// the number of threads.
pub struct DirectorySource {
    files: Files,
    is_over: bool,
    links: LinkedFiles,
    returned: u64,
}

impl DirectorySource {
    /// Opens the directory `path` (following symbolic links) and, if [`Options::threads`] is supported, starts the
    /// threads that read ahead.
    ///
    /// # Errors
    /// If the directory cannot be opened or listed, or a thread cannot be started.
    pub fn open(path: &Path, options: &Options) -> Result<Self, SourceError> {
        let root = Arc::new(Root::open(path, options.exclude.clone())?);
        let files = Files::start(root, options.threads.min(Options::THREADS_MAX))?;
        Ok(Self { files, is_over: false, links: LinkedFiles::default(), returned: 0 })
    }
}

impl Source for DirectorySource {
    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        if self.is_over {
            return Ok(None);
        }
        let next = self.files.next();
        match &next {
            Ok(Some(_)) => self.returned += 1,
            _ => self.is_over = true,
        }
        let next = next?;
        Ok(next.map(|Scanned { entry, id, links }| self.links.resolve(entry, id, links)))
    }

    fn read(&mut self, _: &mut [u8]) -> Result<usize, SourceError> {
        Ok(0)
    }

    fn entries_min(&mut self) -> u64 {
        self.files.names_min()
    }

    fn progress(&self) -> Progress {
        Progress { done: self.returned, total: None }
    }
}
