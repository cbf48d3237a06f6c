//! Host directories with mapped names, as written by `extract` for names that Windows does not support.

use std::io;
use std::path::{Path, PathBuf};

use import::{DirectorySource, Entry, EntryKind, Options, Progress, Source, SourceError};

use super::{BuildError, BuildSource};
use crate::host;
use crate::windows_names::{STANDS_FOR_NONE, unmapped, unmapped_path};

/// Directory source that restores the original names.
pub(super) struct Mapped {
    names: DirectorySource,
    top: PathBuf,
}

impl Mapped {
    /// Opens a directory.
    ///
    /// # Errors
    /// Same as [`DirectorySource::open`].
    pub(super) fn open(path: &Path, options: &Options) -> Result<Self, SourceError> {
        let names = DirectorySource::open(path, options)?;
        Ok(Self { names, top: path.to_owned() })
    }

    /// Returns the original path of a mapped path.
    fn meant(&self, path: &[u8]) -> Result<Vec<u8>, SourceError> {
        unmapped_path(path).ok_or_else(|| SourceError::Io {
            operation: "take",
            path: self.top.join(host::path_to_show(path)),
            source: io::Error::other(STANDS_FOR_NONE),
        })
    }
}

impl Source for Mapped {
    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        let Some(mut entry) = self.names.next_entry()? else { return Ok(None) };
        entry.path = self.meant(&entry.path)?;
        entry.kind = match entry.kind {
            EntryKind::Hardlink(first) => EntryKind::Hardlink(self.meant(&first)?),
            EntryKind::Symlink(target) => EntryKind::Symlink(unmapped(&target)),
            kind => kind,
        };
        Ok(Some(entry))
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize, SourceError> {
        self.names.read(buf)
    }

    fn entries_min(&mut self) -> u64 {
        self.names.entries_min()
    }

    fn progress(&self) -> Progress {
        self.names.progress()
    }
}

/// Rejects name mapping if no source is a directory.
///
/// # Errors
/// If no source is a directory.
pub(super) fn check(source: &BuildSource) -> Result<(), BuildError> {
    if has_directory(source) {
        return Ok(());
    }
    let problem = "--map-names is for directories only; other targets support any name";
    Err(BuildError::usage(problem))
}

fn has_directory(source: &BuildSource) -> bool {
    match source {
        BuildSource::Files(path) => path.is_dir(),
        BuildSource::Several(sources) => sources.iter().any(|placed| has_directory(&placed.source)),
        BuildSource::Container(_)
        | BuildSource::Image(_)
        | BuildSource::Manifest(_)
        | BuildSource::Protofile(_) => false,
    }
}
