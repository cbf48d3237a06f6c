//! Traversal of a tree: determines the order of names without reading the files.
//!
//! A walk lists directories depth first and returns batches of names. It keeps the listings of the current path of
//! directories, but only the innermost ones open. An outer one is reopened through `..` and must then be the same
//! directory as before. There is no recursion.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat};

use super::host::{Root, file_id};
use super::listing::{Hint, SortedNames};
use crate::{FileId, SourceChange, SourceError};

/// Maximum number of names in a batch: large enough to amortise the transfer between threads, small enough to
/// distribute work.
const BATCH_NAMES_MAX: usize = 256;
/// Maximum number of directories in a batch: each keeps a descriptor open until the batch is scanned.
const BATCH_DIRECTORIES_MAX: usize = 24;
/// Maximum number of open directories of the current path.
const OPEN_LEVELS_MAX: usize = 32;
/// Number of bytes of directory entries read by one system call.
const READ_BUFFER_BYTES: usize = 128 << 10;

/// An open directory and its names.
#[derive(Debug)]
pub(super) struct OpenDirectory {
    pub(super) fd: OwnedFd,
    /// Path from the root, in the form of `Entry::path`.
    pub(super) path: Vec<u8>,
    pub(super) listing: Arc<SortedNames>,
}

/// Consecutive names of one directory.
#[derive(Debug)]
pub(super) struct NameRange {
    pub(super) node: Arc<OpenDirectory>,
    pub(super) names: Range<usize>,
}

/// A batch of runs in the order of the tree. An error comes after its runs.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) runs: Vec<NameRange>,
    pub(super) error: Option<SourceError>,
}

/// State of a walk.
#[derive(Debug)]
pub(super) struct DirectoryWalk {
    root: Arc<Root>,
    frames: Vec<Frame>,
    buffer: Vec<u8>,
    /// True if the root has not been listed yet.
    is_new: bool,
    /// Number of the next batch.
    pub(super) seq: u64,
}

/// A directory of the current path.
#[derive(Debug)]
struct Frame {
    /// `None` while it is closed.
    node: Option<Arc<OpenDirectory>>,
    listing: Arc<SortedNames>,
    id: FileId,
    path_len: usize,
    /// Index of the next name.
    next: usize,
}

impl DirectoryWalk {
    pub(super) fn new(root: Arc<Root>) -> Self {
        let buffer = Vec::with_capacity(READ_BUFFER_BYTES);
        Self { root, frames: Vec::new(), buffer, is_new: true, seq: 0 }
    }

    /// Returns the next batch; one without runs and error is the end. Must not be called after an error.
    pub(super) fn next_batch(&mut self) -> Batch {
        self.seq += 1;
        let mut batch = Batch::default();
        if self.is_new {
            self.is_new = false;
            batch.error = self.enter(Vec::new()).err();
        }
        let mut names = 0;
        while batch.error.is_none()
            && names < BATCH_NAMES_MAX
            && batch.runs.len() < BATCH_DIRECTORIES_MAX
        {
            match self.next_run(BATCH_NAMES_MAX - names) {
                Ok((run, error)) => {
                    batch.error = error;
                    let Some(run) = run else { break };
                    names += run.names.len();
                    batch.runs.push(run);
                }
                Err(error) => batch.error = Some(error),
            }
        }
        batch
    }

    /// Takes up to `max` names of the innermost directory that has any left. Stops after a directory and enters it; the
    /// error is that of entering.
    fn next_run(
        &mut self,
        max: usize,
    ) -> Result<(Option<NameRange>, Option<SourceError>), SourceError> {
        while let Some(frame) = self.frames.last() {
            if frame.next < frame.listing.len() {
                break;
            }
            self.leave()?;
        }
        let Some(frame) = self.frames.last_mut() else { return Ok((None, None)) };
        let Some(node) = frame.node.clone() else { return Ok((None, None)) };
        let start = frame.next;
        let end = node.listing.len().min(start + max);
        let mut error = None;
        while frame.next < end {
            let index = frame.next;
            frame.next += 1;
            match is_directory(&self.root, &node, index) {
                Ok(false) => {}
                Ok(true) => {
                    let path = join(&node.path, node.listing.name(index));
                    error = self.enter(path).err();
                    let names = start..index + 1;
                    return Ok((Some(NameRange { node, names }), error));
                }
                Err(e) => {
                    error = Some(e);
                    let names = start..index;
                    return Ok((Some(NameRange { node, names }), error));
                }
            }
        }
        Ok((Some(NameRange { node, names: start..end }), error))
    }

    /// Opens and lists the directory at `path`, whose parent is the innermost one.
    fn enter(&mut self, path: Vec<u8>) -> Result<(), SourceError> {
        let host_path = || self.root.shown_path(&path);
        let parent = self.frames.last().and_then(|frame| frame.node.as_ref());
        let (at, name) = match parent {
            Some(parent) => {
                let index = self.frames.last().map_or(0, |frame| frame.next - 1);
                (parent.fd.as_fd(), parent.listing.c_name(index))
            }
            None => (self.root.fd.as_fd(), c"."),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(at, name, flags, Mode::empty())
            .map_err(|e| SourceError::io("open directory", &host_path(), e))?;
        let stat = fstat(&fd).map_err(|e| SourceError::io("read directory", &host_path(), e))?;
        let id = file_id(&stat);
        if self.root.exclude.contains(&id) {
            return Ok(());
        }
        let listing = SortedNames::read(fd.as_fd(), &mut self.buffer)
            .map_err(|e| SourceError::io("read directory", &host_path(), e))?;
        if self.frames.is_empty() {
            self.root.names.store(listing.len() as u64, Ordering::Relaxed);
        }
        let listing = Arc::new(listing);
        let path_len = path.len();
        let node = Some(Arc::new(OpenDirectory { fd, path, listing: listing.clone() }));
        self.frames.push(Frame { node, listing, id, path_len, next: 0 });
        if let Some(outer) = self.frames.len().checked_sub(OPEN_LEVELS_MAX + 1) {
            self.frames[outer].node = None;
        }
        Ok(())
    }

    /// Leaves the innermost directory, and reopens its parent if necessary.
    fn leave(&mut self) -> Result<(), SourceError> {
        let (Some(child), Some(parent)) = (self.frames.pop(), self.frames.last_mut()) else {
            return Ok(());
        };
        let (None, Some(child)) = (&parent.node, child.node) else { return Ok(()) };
        let path = child.path[..parent.path_len].to_vec();
        let host_path = || self.root.shown_path(&path);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(&child.fd, c"..", flags, Mode::empty())
            .map_err(|e| SourceError::io("open directory", &host_path(), e))?;
        let stat = fstat(&fd).map_err(|e| SourceError::io("read directory", &host_path(), e))?;
        if file_id(&stat) != parent.id {
            return Err(SourceError::Changed { path: host_path(), change: SourceChange::Modified });
        }
        parent.node = Some(Arc::new(OpenDirectory { fd, path, listing: parent.listing.clone() }));
        Ok(())
    }
}

fn is_directory(root: &Root, node: &OpenDirectory, index: usize) -> Result<bool, SourceError> {
    match node.listing.hint(index) {
        Hint::Directory => Ok(true),
        Hint::Other => Ok(false),
        Hint::Unknown => {
            let name = node.listing.c_name(index);
            let stat = statat(&node.fd, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| {
                let path = root.shown_path(&join(&node.path, node.listing.name(index)));
                SourceError::io("read the attributes of", &path, e)
            })?;
            Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
        }
    }
}

/// Returns the path of `name` in the directory at `path`.
pub(super) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(path.len() + 1 + name.len());
    if !path.is_empty() {
        joined.extend_from_slice(path);
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    joined
}
