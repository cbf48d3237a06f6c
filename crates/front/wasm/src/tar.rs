//! Tar archive of a directory or file, generated in pieces.

use std::rc::Rc;

use diskwright::Error;
use diskwright::extract::{ExtractOptions, Observer, TarStream};

use crate::failure::{Failure, Result};
use crate::volume::Volume;

/// Minimum size of a piece in bytes, except the last one.
const PIECE_BYTES: usize = 1 << 20;

/// Archive in progress.
pub(crate) struct Tar {
    volume: Rc<Volume>,
    stream: TarStream,
    remarks: Remarks,
}

/// Unreadable data, and files that archives do not support.
#[derive(Default)]
struct Remarks(Vec<Failure>);

impl Observer for Remarks {
    fn file(&mut self, _path: &[u8]) {}

    fn copied(&mut self, _bytes: u64) {}

    fn warning(&mut self, message: &str) {
        self.0.push(Failure::invalid(message));
    }

    fn unreadable(&mut self, error: &Error) {
        self.0.push(Failure::of(error));
    }
}

impl Tar {
    /// Starts an archive of a path. Unreadable data is omitted or zeroed.
    ///
    /// # Errors
    /// If it does not exist.
    pub(crate) fn new(volume: Rc<Volume>, path: &[u8]) -> Result<Self> {
        let options = ExtractOptions::default().path(path).keep_going(true);
        let stream =
            volume.with(|image| Ok(TarStream::new(image.file_system()?.paths(), &options)?))?;
        Ok(Self { volume, stream, remarks: Remarks::default() })
    }

    /// Returns the next piece of the archive, or an empty one at the end.
    ///
    /// # Errors
    /// If the image was closed.
    pub(crate) fn next_piece(&mut self) -> Result<Vec<u8>> {
        let mut piece = Vec::new();
        self.volume.with(|image| {
            let fs = image.file_system()?;
            while piece.len() < PIECE_BYTES
                && self.stream.step(fs.paths(), &mut piece, &mut self.remarks)?
            {}
            Ok(())
        })?;
        Ok(piece)
    }

    /// Returns the number of files so far.
    pub(crate) fn files(&self) -> u64 {
        self.stream.report().files
    }

    /// Returns the omitted or unreadable files so far.
    pub(crate) fn remarks(&self) -> &[Failure] {
        &self.remarks.0
    }
}
