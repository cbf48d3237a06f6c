//! A directory of a Unix host as a source.
//!
//! The work is split in three: [`walk`] finds the order of the names, [`scan`] reads everything
//! about a batch of names (on several threads if wanted, see [`pipeline`]), and [`DirectorySource`]
//! hands out entries in order and recognises hard links. Only the first and the last depend on
//! order, so the number of threads changes nothing in the stream. The contents of files whose size is not
//! known before they are read (those of `/proc`) are copied aside when they are listed, see
//! [`unsized_files`].

mod host;
mod listing;
mod os;
mod pipeline;
mod scan;
mod single;
mod unsized_files;
mod walk;
mod xattr;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::vec;

pub(crate) use host::HostFile;
use host::Root;
use pipeline::Pipeline;
use scan::{Scanned, ScannedBatch, Scanner};
pub(crate) use single::HostTree;
use walk::Walk;

use super::links::Links;
use crate::{Entry, Options, Progress, Source, SourceError};

/// A directory and everything below it, other mounted file systems included.
pub struct DirectorySource {
    root: Arc<Root>,
    batches: Batches,
    /// Entries of the current batch that have not been returned.
    entries: vec::IntoIter<Option<Scanned>>,
    /// The error that follows them.
    error: Option<SourceError>,
    is_started: bool,
    /// No batch is left.
    is_walked: bool,
    is_over: bool,
    links: Links,
    returned: u64,
}

enum Batches {
    Inline(Box<(Walk, Scanner)>),
    Threads(Pipeline),
}

impl DirectorySource {
    /// Opens the directory `path` (through symbolic links) and starts the threads that read ahead.
    ///
    /// # Errors
    /// If the directory cannot be opened or a thread cannot be started.
    pub fn open(path: &Path, options: &Options) -> Result<Self, SourceError> {
        let root = Arc::new(Root::open(path, options.exclude.clone())?);
        let walk = Walk::new(root.clone());
        let batches = match options.threads.min(Options::THREADS_MAX) {
            0 => Batches::Inline(Box::new((walk, Scanner::new(root.clone())))),
            threads => Batches::Threads(Pipeline::start(&root, walk, threads)?),
        };
        Ok(Self {
            root,
            batches,
            entries: Vec::new().into_iter(),
            error: None,
            is_started: false,
            is_walked: false,
            is_over: false,
            links: Links::default(),
            returned: 0,
        })
    }

    /// The next entry that is not excluded, or the error that comes before it.
    fn advance(&mut self) -> Result<Option<Entry>, SourceError> {
        if !self.is_started {
            self.is_started = true;
            return Scanner::new(self.root.clone()).scan_root().map(Some);
        }
        loop {
            if let Some(scanned) = self.entries.next() {
                match scanned {
                    Some(Scanned { entry, id, links }) => {
                        return Ok(Some(self.links.resolve(entry, id, links)));
                    }
                    None => continue,
                }
            }
            if let Some(error) = self.error.take() {
                return Err(error);
            }
            if !self.take_batch() {
                return Ok(None);
            }
        }
    }

    /// Makes the next batch the current one. False at the end.
    fn take_batch(&mut self) -> bool {
        if self.is_walked {
            return false;
        }
        let batch = self.next_batch();
        let is_end = batch.entries.is_empty() && batch.error.is_none();
        self.is_walked = is_end;
        self.entries = batch.entries.into_iter();
        self.error = batch.error;
        !is_end
    }

    fn next_batch(&mut self) -> ScannedBatch {
        match &mut self.batches {
            Batches::Inline(inline) => {
                let (walk, scanner) = &mut **inline;
                scanner.scan(walk.next_batch())
            }
            Batches::Threads(pipeline) => pipeline.next(&self.root),
        }
    }
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
        // The first batch of names comes when the directory itself has been listed.
        if !self.is_started && self.entries.len() == 0 && self.error.is_none() {
            self.take_batch();
        }
        self.root.names.load(Ordering::Relaxed)
    }

    fn progress(&self) -> Progress {
        Progress { done: self.returned, total: None }
    }
}
