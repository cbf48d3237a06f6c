//! Contents of a file in an image, readable from any thread.

use std::fmt;
use std::sync::Arc;

use import::{Content, DataRun, ReadContent, SourceError};
use vfs::Ino;
use vfs::runs::{Run, data_runs, read_exactly};

use super::ImageTree;

/// File of an image.
struct SourceImageFile {
    tree: ImageTree,
    ino: Ino,
    path: Box<[u8]>,
}

impl fmt::Debug for SourceImageFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contents").field("ino", &self.ino).finish_non_exhaustive()
    }
}

impl ReadContent for SourceImageFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        let read = read_exactly(self.tree.fs(), self.ino, offset, buf);
        read.map_err(|e| self.tree.error(&self.path, e))
    }
}

/// Returns the contents of a regular file. Unallocated and unwritten ranges are holes.
pub(super) fn contents(tree: &ImageTree, ino: Ino, size: u64, path: &[u8]) -> vfs::Result<Content> {
    let runs = data_runs(tree.fs(), ino, size)?;
    let sparse = match runs[..] {
        [Run { offset: 0, len }] if len == size => None,
        [] if size == 0 => None,
        _ => Some(runs.iter().map(|run| DataRun { offset: run.offset, len: run.len }).collect()),
    };
    let reader = SourceImageFile { tree: tree.clone(), ino, path: path.into() };
    Ok(Content::elsewhere(size, sparse, Arc::new(reader)))
}
