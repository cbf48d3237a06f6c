//! Directories of a host as far as the standard library and [`facts`] know files: types, sizes, times, links, and whether
//! a file is to be written. There are no owners, no devices and no extended attributes.
//!
//! Names come in the order of a directory source on Unix, by their UTF-8. The caller's thread does all of the work,
//! and nothing is recursive.

mod facts;
mod host;

use std::sync::Arc;
use std::vec;

use facts::{Facts, Kind};
pub(super) use host::{Root, find, state_of};
use host::{bytes_of, kind_of};

use super::READ_ATTRIBUTES;
use super::found::Scanned;
use crate::{Entry, SourceError, Xattr};

/// All that is in a directory, itself first.
pub(super) struct Files {
    root: Arc<Root>,
    /// The directories that the walk is in, the root first. None before it began.
    frames: Vec<Frame>,
    is_started: bool,
    names_min: u64,
}

/// A directory, and names in it that have not come.
struct Frame {
    path: Vec<u8>,
    names: vec::IntoIter<Vec<u8>>,
}

impl Files {
    /// Begins, and lists the directory. The caller's thread does all of the work, whatever it is allowed.
    pub(super) fn start(root: Arc<Root>, _: usize) -> Result<Self, SourceError> {
        let names = list(&root, b"")?;
        let names_min = names.len() as u64;
        let frames = vec![Frame { path: Vec::new(), names: names.into_iter() }];
        Ok(Self { root, frames, is_started: false, names_min })
    }

    /// The next file that is not excluded. Not to be asked after an error.
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

    /// How many names there are at least.
    pub(super) fn names_min(&mut self) -> u64 {
        self.names_min
    }

    /// One file, unless it is left out. What is in a directory comes next.
    fn look(&mut self, path: Vec<u8>) -> Result<Option<Scanned>, SourceError> {
        let facts = Facts::of_path(&self.root.host_path(&path))
            .map_err(|e| SourceError::io(READ_ATTRIBUTES, &self.root.shown_path(&path), e))?;
        if self.root.exclude.contains(&facts.id()) && !path.is_empty() {
            return Ok(None);
        }
        let kind = kind_of(&self.root, &path, &facts)?;
        if facts.kind == Kind::Directory && !path.is_empty() {
            let names = list(&self.root, &path)?.into_iter();
            self.frames.push(Frame { path: path.clone(), names });
        }
        let (metadata, xattrs) = (facts.metadata(), Vec::new());
        let entry = Entry { path, kind, metadata, xattrs, inode: None };
        Ok(Some(Scanned { entry, id: facts.id(), links: facts.links }))
    }
}

/// The names in a directory, sorted.
fn list(root: &Root, path: &[u8]) -> Result<Vec<Vec<u8>>, SourceError> {
    let io = |e| SourceError::io("read directory", &root.shown_path(path), e);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root.host_path(path)).map_err(io)? {
        names.push(bytes_of(&entry.map_err(io)?.file_name()).map_err(io)?);
    }
    names.sort_unstable();
    // A directory that changes while it is listed may give a name twice.
    names.dedup();
    Ok(names)
}

/// The extended attributes of a file: nothing here tells them.
pub(super) fn xattrs(_: &Root, _: &[u8]) -> Result<Vec<Xattr>, SourceError> {
    Ok(Vec::new())
}
