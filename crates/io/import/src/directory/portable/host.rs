//! The root of a directory source, and files below it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::facts::{Facts, HostFileType};
use crate::directory::READ_ATTRIBUTES;
use crate::directory::file::{FileStamp, HostFile};
use crate::directory::found::FoundFile;
use crate::host::as_path;
use crate::{Content, EntryKind, FileId, SourceError};

/// The directory of a source.
#[derive(Debug)]
pub(in crate::directory) struct Root {
    /// Absolute and without symbolic links, so that it stays valid if the working directory changes.
    path: PathBuf,
    /// The path as given, for messages.
    shown: PathBuf,
    /// Excluded files and directories.
    pub(super) exclude: Vec<FileId>,
}

impl Root {
    pub(in crate::directory) fn open(
        path: &Path,
        exclude: Vec<FileId>,
    ) -> Result<Self, SourceError> {
        let io = |e| SourceError::io("open directory", path, e);
        let resolved = std::fs::canonicalize(path).map_err(io)?;
        if Facts::of_path(&resolved).map_err(io)?.kind != HostFileType::Directory {
            return Err(io(io::ErrorKind::NotADirectory.into()));
        }
        Ok(Self { path: resolved, shown: path.to_owned(), exclude })
    }

    /// Returns the host path of a file. Joined by component, because `/` is not a separator in absolute Windows paths
    /// without symbolic links.
    pub(super) fn host_path(&self, path: &[u8]) -> PathBuf {
        below(&self.path, path)
    }

    /// Opens a file of the source.
    pub(in crate::directory) fn open_file(&self, path: &[u8]) -> io::Result<File> {
        File::open(self.host_path(path))
    }

    /// Returns the path of a file for messages.
    pub(in crate::directory) fn shown_path(&self, path: &[u8]) -> PathBuf {
        below(&self.shown, path)
    }
}

fn below(root: &Path, path: &[u8]) -> PathBuf {
    let mut below = root.to_owned();
    path.split(|&byte| byte == b'/')
        .filter(|part| !part.is_empty())
        .for_each(|part| below.push(as_path(part)));
    below
}

/// Converts a host name or link target to the bytes of an image.
pub(super) fn bytes_of(name: &OsStr) -> io::Result<Vec<u8>> {
    let text = name.to_str().ok_or_else(|| {
        let problem = format!("{name:?} is not Unicode: give it another name");
        io::Error::new(io::ErrorKind::InvalidData, problem)
    })?;
    Ok(text.as_bytes().to_vec())
}

/// Returns the type of the file at `path` with its data. Contents are opened later.
pub(super) fn kind_of(
    root: &Arc<Root>,
    path: &[u8],
    facts: &Facts,
) -> Result<EntryKind, SourceError> {
    let io = |operation, e| SourceError::io(operation, &root.shown_path(path), e);
    Ok(match facts.kind {
        HostFileType::Directory => EntryKind::Directory,
        HostFileType::File => {
            let host = HostFile::new(root, path, facts.state);
            EntryKind::File(Content::host(facts.state.size, None, Box::new(host)))
        }
        HostFileType::Symlink => {
            let link = "read the link";
            let target = std::fs::read_link(root.host_path(path)).map_err(|e| io(link, e))?;
            let mut target = bytes_of(target.as_os_str()).map_err(|e| io(link, e))?;
            if target.is_empty() {
                return Err(io(link, io::ErrorKind::InvalidData.into()));
            }
            for byte in target.iter_mut().filter(|byte| **byte == b'\\') {
                *byte = b'/';
            }
            EntryKind::Symlink(target)
        }
        HostFileType::Other => {
            return Err(io("find the type of", io::ErrorKind::Unsupported.into()));
        }
    })
}

/// Returns the state that detects changes of an open file.
pub(in crate::directory) fn state_of(file: &File) -> io::Result<FileStamp> {
    Facts::of_file(file).map(|facts| facts.state)
}

/// Returns the file at a path, as [`HostTree::find`](crate::directory::HostTree::find) specifies. Does not open files,
/// because holes are unknown.
pub(in crate::directory) fn find(
    root: &Arc<Root>,
    path: &[u8],
    _: bool,
) -> Result<Option<FoundFile>, SourceError> {
    // Such names do not exist on this host, and the path would lead elsewhere.
    if path.iter().any(|byte| b"\\:\0".contains(byte)) {
        return Ok(None);
    }
    let facts = match Facts::of_path(&root.host_path(path)) {
        Ok(facts) => facts,
        Err(e) if is_absent(&e) => return Ok(None),
        Err(e) => return Err(SourceError::io(READ_ATTRIBUTES, &root.shown_path(path), e)),
    };
    let kind = kind_of(root, path, &facts)?;
    Ok(Some(FoundFile { kind, metadata: facts.metadata(), id: facts.id(), links: facts.links }))
}

fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename)
}
