//! The root of a directory source, and files beneath it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::facts::{Facts, Kind};
use crate::content::size_changed;
use crate::directory::found::Found;
use crate::host::as_path;
use crate::{Change, Content, EntryKind, FileId, SourceError, Time};

pub(super) const READ_ATTRIBUTES: &str = "read the attributes of";

/// The directory a source reads.
#[derive(Debug)]
pub(super) struct Root {
    /// Absolute and without symbolic links, so that it stays right if the process moves.
    pub(super) path: PathBuf,
    /// As it was named, for messages.
    shown: PathBuf,
}

impl Root {
    pub(super) fn open(path: &Path) -> Result<Self, SourceError> {
        let io = |e| SourceError::io("open directory", path, e);
        let resolved = std::fs::canonicalize(path).map_err(io)?;
        if Facts::of_path(&resolved).map_err(io)?.kind != Kind::Directory {
            return Err(io(io::ErrorKind::NotADirectory.into()));
        }
        Ok(Self { path: resolved, shown: path.to_owned() })
    }

    /// Where a file of the source is on the host. Part by part, because `/` separates nothing in absolute paths of
    /// Windows that have no symbolic links.
    pub(super) fn host_path(&self, path: &[u8]) -> PathBuf {
        below(&self.path, path)
    }

    /// The same for messages.
    pub(super) fn shown_path(&self, path: &[u8]) -> PathBuf {
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

/// A name or target of the host as bytes of an image: text.
pub(super) fn bytes_of(name: &OsStr) -> io::Result<Vec<u8>> {
    let text = name.to_str().ok_or_else(|| {
        let problem = format!("{name:?} is not Unicode: give it another name");
        io::Error::new(io::ErrorKind::InvalidData, problem)
    })?;
    Ok(text.as_bytes().to_vec())
}

/// The type of the file at `path`, and what belongs to it. Contents are opened later.
pub(super) fn kind_of(
    root: &Arc<Root>,
    path: &[u8],
    facts: &Facts,
) -> Result<EntryKind, SourceError> {
    let io = |operation, e| SourceError::io(operation, &root.shown_path(path), e);
    Ok(match facts.kind {
        Kind::Directory => EntryKind::Directory,
        Kind::File => {
            let (id, size, mtime) = (facts.id, facts.size, facts.mtime);
            let host = HostFile { root: Arc::clone(root), path: path.into(), id, size, mtime };
            EntryKind::File(Content::host(size, None, Box::new(host)))
        }
        Kind::Symlink => {
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
        Kind::Other => return Err(io("find the type of", io::ErrorKind::Unsupported.into())),
    })
}

/// A regular file of the source, as it was when it was listed.
#[derive(Clone, Debug)]
pub(crate) struct HostFile {
    root: Arc<Root>,
    path: Box<[u8]>,
    id: FileId,
    pub(crate) size: u64,
    mtime: Time,
}

impl HostFile {
    pub(crate) fn host_path(&self) -> PathBuf {
        self.root.shown_path(&self.path)
    }

    /// Opens the file and confirms that it is still the one that was listed.
    pub(crate) fn open(&self) -> Result<File, SourceError> {
        let file = File::open(self.root.host_path(&self.path))
            .map_err(|e| SourceError::io("open", &self.host_path(), e))?;
        self.check(&file)?;
        Ok(file)
    }

    /// Confirms that the open file is still in the state that was listed.
    pub(crate) fn check(&self, file: &File) -> Result<(), SourceError> {
        let facts =
            Facts::of_file(file).map_err(|e| SourceError::io("read", &self.host_path(), e))?;
        if facts.id == self.id && facts.size == self.size && facts.mtime == self.mtime {
            return Ok(());
        }
        Err(size_changed(&self.host_path(), self.size, facts.size))
    }

    /// The error for a file that ended too early.
    pub(crate) fn shrunk(&self, file: &File) -> SourceError {
        let found = file.metadata().map_or(0, |metadata| metadata.len());
        if found == self.size {
            let change = Change::Short { said: found };
            return SourceError::Changed { path: self.host_path(), change };
        }
        size_changed(&self.host_path(), self.size, found)
    }
}

/// A directory of the host in which files are looked for by their paths.
#[derive(Clone, Debug)]
pub(crate) struct HostTree(Arc<Root>);

impl HostTree {
    /// Opens a directory.
    pub(crate) fn open(path: &Path) -> Result<Self, SourceError> {
        Ok(Self(Arc::new(Root::open(path)?)))
    }

    /// The file at a path, in the form of `Entry::path`, or none. Symbolic links on the way are followed;
    /// the one at its end is the file. `wants_contents` is of no concern here: no file is opened.
    pub(crate) fn find(&self, path: &[u8], _: bool) -> Result<Option<Found>, SourceError> {
        // No file has such a name here, and such a path would lead elsewhere.
        if path.iter().any(|byte| b"\\:\0".contains(byte)) {
            return Ok(None);
        }
        let facts = match Facts::of_path(&self.0.host_path(path)) {
            Ok(facts) => facts,
            Err(e) if is_absent(&e) => return Ok(None),
            Err(e) => return Err(SourceError::io(READ_ATTRIBUTES, &self.0.shown_path(path), e)),
        };
        let kind = kind_of(&self.0, path, &facts)?;
        Ok(Some(Found { kind, metadata: facts.metadata(), id: facts.id, links: facts.links }))
    }
}

fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory | InvalidFilename)
}
