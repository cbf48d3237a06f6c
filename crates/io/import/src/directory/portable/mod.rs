//! Host directories with the attributes that the standard library and [`facts`] provide: types, sizes, times, links and
//! a read-only flag. No owners, devices and extended attributes.
//!
//! Names are sorted by their UTF-8 bytes, as in a directory source on Unix. The caller's thread does all work, without
//! recursion.

mod facts;
mod host;

use std::sync::Arc;
use std::vec;

use facts::{Facts, HostFileType};
pub(super) use host::{Root, find, state_of};
use host::{bytes_of, kind_of};

use super::READ_ATTRIBUTES;
use super::found::Scanned;
use crate::{Entry, SourceError, Xattr};

/// All files below a directory, the directory itself first.
pub(super) struct Files {
    root: Arc<Root>,
    /// The current path of directories, the root first. Empty before the walk begins.
    frames: Vec<Frame>,
    is_started: bool,
    names_min: u64,
}

/// A directory, and its remaining names.
struct Frame {
    path: Vec<u8>,
    names: vec::IntoIter<Vec<u8>>,
}

impl Files {
    /// Starts and lists the directory. Ignores the number of threads.
    pub(super) fn start(root: Arc<Root>, _: usize) -> Result<Self, SourceError> {
        let names = list(&root, b"")?;
        let names_min = names.len() as u64;
        let frames = vec![Frame { path: Vec::new(), names: names.into_iter() }];
        Ok(Self { root, frames, is_started: false, names_min })
    }

    /// Returns the next file that is not excluded. Must not be called after an error.
    pub(super) fn next(&mut self) -> Result<Option<Scanned>, SourceError> {
        if !self.is_started {
            self.is_started = true;
            return self.look(Vec::new());
        }
        while let Some(frame) = self.frames.last_mut() {
            let Some(name) = frame.names.next() else {
                self.frames.pop();
                continue;
            };
            let path = match frame.path.is_empty() {
                true => name,
                false => [&frame.path, &b"/"[..], &name].concat(),
            };
            if let Some(scanned) = self.look(path)? {
                return Ok(Some(scanned));
            }
        }
        Ok(None)
    }

    /// Returns the minimum number of names.
    pub(super) fn names_min(&mut self) -> u64 {
        self.names_min
    }

    /// Returns one file, unless it is excluded. The entries of a directory come next.
    fn look(&mut self, path: Vec<u8>) -> Result<Option<Scanned>, SourceError> {
        let facts = Facts::of_path(&self.root.host_path(&path))
            .map_err(|e| SourceError::io(READ_ATTRIBUTES, &self.root.shown_path(&path), e))?;
        if self.root.exclude.contains(&facts.id()) && !path.is_empty() {
            return Ok(None);
        }
        let kind = kind_of(&self.root, &path, &facts)?;
        if facts.kind == HostFileType::Directory && !path.is_empty() {
            let names = list(&self.root, &path)?.into_iter();
            self.frames.push(Frame { path: path.clone(), names });
        }
        let (metadata, xattrs) = (facts.metadata(), Vec::new());
        let entry = Entry { path, kind, metadata, xattrs, inode: None };
        Ok(Some(Scanned { entry, id: facts.id(), links: facts.links }))
    }
}

/// Returns the names in a directory, sorted.
fn list(root: &Root, path: &[u8]) -> Result<Vec<Vec<u8>>, SourceError> {
    let io = |e| SourceError::io("read directory", &root.shown_path(path), e);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root.host_path(path)).map_err(io)? {
        names.push(bytes_of(&entry.map_err(io)?.file_name()).map_err(io)?);
    }
    names.sort_unstable();
    // A directory that changes while it is listed may return a name twice.
    names.dedup();
    Ok(names)
}

/// Returns no extended attributes, which are not available here.
pub(super) fn xattrs(_: &Root, _: &[u8]) -> Result<Vec<Xattr>, SourceError> {
    Ok(Vec::new())
}
