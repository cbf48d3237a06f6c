//! Source without extended attributes.

use import::{Entry, Progress, Source, SourceError};

/// Wraps a source and drops its extended attributes.
pub(super) struct WithoutXattrs(pub(super) Box<dyn Source>);

impl Source for WithoutXattrs {
    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        let entry = self.0.next_entry()?;
        Ok(entry.map(|entry| Entry { xattrs: Vec::new(), ..entry }))
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize, SourceError> {
        self.0.read(buf)
    }

    fn entries_min(&mut self) -> u64 {
        self.0.entries_min()
    }

    fn progress(&self) -> Progress {
        self.0.progress()
    }
}
