//! Directories of a Unix host.
//!
//! Reading everything in a directory has three stages: [`walk`] determines the order of the names, [`scan`] reads a
//! batch of names (optionally on several threads, see [`pipeline`]), and [`Files`] returns the results in order. Only
//! the first and the last stage depend on the order, so the number of threads does not affect the stream. Files whose
//! size is unknown before they are read (those of `/proc`) are copied when they are listed, see [`unsized_files`].

mod host;
mod listing;
mod os;
mod pipeline;
mod scan;
mod single;
mod unsized_files;
mod walk;
mod xattr;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::vec;

pub(super) use host::{Root, state_of};
use pipeline::Pipeline;
use scan::{ScannedBatch, Scanner};
pub(super) use single::{find, xattrs};
use walk::DirectoryWalk;

use super::found::Scanned;
use crate::SourceError;

/// All files below a directory, the directory itself first.
pub(super) struct Files {
    root: Arc<Root>,
    batches: Batches,
    /// Remaining entries of the current batch.
    entries: vec::IntoIter<Option<Scanned>>,
    /// The error that follows them.
    error: Option<SourceError>,
    is_started: bool,
    /// True if no batch is left.
    is_walked: bool,
}

enum Batches {
    Inline(Box<(DirectoryWalk, Scanner)>),
    Threads(Pipeline),
}

impl Files {
    /// Starts with `threads` threads that read ahead.
    pub(super) fn start(root: Arc<Root>, threads: usize) -> Result<Self, SourceError> {
        let walk = DirectoryWalk::new(root.clone());
        let batches = match threads {
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
        })
    }

    /// Returns the next file that is not excluded, or the error that precedes it. Must not be called after an error.
    pub(super) fn next(&mut self) -> Result<Option<Scanned>, SourceError> {
        if !self.is_started {
            self.is_started = true;
            return Scanner::new(self.root.clone()).scan_root().map(Some);
        }
        loop {
            match self.entries.next() {
                Some(Some(scanned)) => return Ok(Some(scanned)),
                Some(None) => continue,
                None => {}
            }
            if let Some(error) = self.error.take() {
                return Err(error);
            }
            if !self.take_batch() {
                return Ok(None);
            }
        }
    }

    /// Returns the minimum number of names.
    pub(super) fn names_min(&mut self) -> u64 {
        // The first batch of names is available when the directory itself has been listed.
        if !self.is_started && self.entries.len() == 0 && self.error.is_none() {
            self.take_batch();
        }
        self.root.names.load(Ordering::Relaxed)
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
