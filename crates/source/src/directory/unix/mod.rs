//! Directories of a Unix host.
//!
//! The work on all that is in one is split in three: [`walk`] finds the order of the names, [`scan`] reads everything
//! about a batch of names (on several threads if wanted, see [`pipeline`]), and [`Files`] hands out what they found in
//! order. Only the first and the last depend on order, so the number of threads changes nothing in the stream. The
//! contents of files whose size is not known before they are read (those of `/proc`) are copied aside when they are
//! listed, see [`unsized_files`].

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
use walk::Walk;

use super::found::Scanned;
use crate::SourceError;

/// All that is in a directory, itself first.
pub(super) struct Files {
    root: Arc<Root>,
    batches: Batches,
    /// Entries of the current batch that have not been returned.
    entries: vec::IntoIter<Option<Scanned>>,
    /// The error that follows them.
    error: Option<SourceError>,
    is_started: bool,
    /// No batch is left.
    is_walked: bool,
}

enum Batches {
    Inline(Box<(Walk, Scanner)>),
    Threads(Pipeline),
}

impl Files {
    /// Begins, with so many threads that read ahead.
    pub(super) fn start(root: Arc<Root>, threads: usize) -> Result<Self, SourceError> {
        let walk = Walk::new(root.clone());
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

    /// The next file that is not excluded, or the error that comes before it. Not to be asked after that.
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

    /// How many names there are at least.
    pub(super) fn names_min(&mut self) -> u64 {
        // The first batch of names comes when the directory itself has been listed.
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
