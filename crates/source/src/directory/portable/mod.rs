//! A directory of the host as a source, as far as the standard library and [`facts`] know files: types, sizes, times,
//! links, and whether a file is to be written. There are no owners, no devices and no extended attributes.
//!
//! Names come in the order of a directory source on Unix, by their UTF-8. The caller's thread does all of the work,
//! and nothing is recursive.

mod facts;
mod host;

use std::path::Path;
use std::sync::Arc;
use std::vec;

use facts::{Facts, Kind};
pub(crate) use host::{HostFile, HostTree};
use host::{READ_ATTRIBUTES, Root, bytes_of, kind_of};

use super::links::Links;
use crate::{Entry, FileId, Options, Progress, Source, SourceError};

/// A directory and everything below it.
pub struct DirectorySource {
    root: Arc<Root>,
    /// Files and directories that are left out.
    exclude: Vec<FileId>,
    /// The directories that the walk is in, the root first. None before it began.
    frames: Vec<Frame>,
    is_started: bool,
    is_over: bool,
    links: Links,
    names_min: u64,
    returned: u64,
}

/// A directory, and names in it that have not come.
struct Frame {
    path: Vec<u8>,
    names: vec::IntoIter<Vec<u8>>,
}

impl DirectorySource {
    /// Opens the directory `path`, through symbolic links, and lists it.
    ///
    /// # Errors
    /// If the directory cannot be opened or listed.
    pub fn open(path: &Path, options: &Options) -> Result<Self, SourceError> {
        let root = Arc::new(Root::open(path)?);
        let names = list(&root, b"")?;
        Ok(Self {
            root,
            exclude: options.exclude.clone(),
            names_min: names.len() as u64,
            frames: vec![Frame { path: Vec::new(), names: names.into_iter() }],
            is_started: false,
            is_over: false,
            links: Links::default(),
            returned: 0,
        })
    }

    /// The next entry that is not excluded.
    fn advance(&mut self) -> Result<Option<Entry>, SourceError> {
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
            if let Some(entry) = self.look(path)? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// The entry of one file, unless it is left out. What is in a directory comes next.
    fn look(&mut self, path: Vec<u8>) -> Result<Option<Entry>, SourceError> {
        let facts = Facts::of_path(&self.root.host_path(&path))
            .map_err(|e| SourceError::io(READ_ATTRIBUTES, &self.root.shown_path(&path), e))?;
        if self.exclude.contains(&facts.id) && !path.is_empty() {
            return Ok(None);
        }
        let kind = kind_of(&self.root, &path, &facts)?;
        if facts.kind == Kind::Directory && !path.is_empty() {
            let names = list(&self.root, &path)?.into_iter();
            self.frames.push(Frame { path: path.clone(), names });
        }
        let (metadata, xattrs) = (facts.metadata(), Vec::new());
        let entry = Entry { path, kind, metadata, xattrs, inode: None };
        Ok(Some(self.links.resolve(entry, facts.id, facts.links)))
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

impl Source for DirectorySource {
    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        if self.is_over {
            return Ok(None);
        }
        let next = self.advance();
        match &next {
            Ok(Some(_)) => self.returned += 1,
            _ => self.is_over = true,
        }
        next
    }

    fn read(&mut self, _: &mut [u8]) -> Result<usize, SourceError> {
        Ok(0)
    }

    fn entries_min(&mut self) -> u64 {
        self.names_min
    }

    fn progress(&self) -> Progress {
        Progress { done: self.returned, total: None }
    }
}
