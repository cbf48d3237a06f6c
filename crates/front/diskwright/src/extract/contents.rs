//! Data of a file in an image, without holes.

use std::collections::VecDeque;

use vfs::Ino;
use vfs::runs::{Run, add_data_runs, read_exactly, read_salvaging};

use super::Job;
use crate::Result;

/// Bytes read at a time.
const READ_BYTES: u64 = 1 << 20;

/// Granularity of unreadable ranges in bytes: the smallest block size.
const UNIT_BYTES: usize = 1024;

impl Job<'_> {
    /// Returns the data runs of a file. On a read error with `keep_going`, returns those before it.
    pub(super) fn data_runs(&mut self, path: &[u8], ino: Ino, size: u64) -> Result<Vec<Run>> {
        let mut runs = Vec::new();
        if let Err((position, error)) = add_data_runs(self.fs(), ino, size, &mut runs) {
            self.unreadable(path, error)?;
            self.lost(path, position..size);
        }
        Ok(runs)
    }

    /// Passes on the data of a file in pieces with their offsets. With `keep_going`, unreadable data is replaced by
    /// zeros.
    #[cfg(feature = "build")]
    pub(super) fn copy_runs(
        &mut self,
        path: &[u8],
        ino: Ino,
        runs: Vec<Run>,
        buffer: &mut Vec<u8>,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut copying = Copying::new(path, ino, runs);
        while self.copy_piece(&mut copying, buffer, each)? {}
        Ok(())
    }

    /// Passes on the next piece of a file. Returns false at the end.
    pub(super) fn copy_piece(
        &mut self,
        copying: &mut Copying,
        buffer: &mut Vec<u8>,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<bool> {
        let Some(Run { offset, len }) = copying.next_piece() else { return Ok(false) };
        let len = len as usize;
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        let piece = &mut buffer[..len];
        if self.extraction.options.keep_going {
            self.salvage_piece(copying, offset, piece)?;
        } else if let Err(error) = read_exactly(self.fs(), copying.ino, offset, piece) {
            self.unreadable(&copying.path, error)?;
        }
        each(offset, piece)?;
        self.extraction.report.bytes += len as u64;
        self.observer.copied(len as u64);
        Ok(true)
    }
}

impl Job<'_> {
    /// Reads a piece, with zeros for unreadable bytes. Each file is reported once.
    fn salvage_piece(
        &mut self,
        copying: &mut Copying,
        offset: u64,
        piece: &mut [u8],
    ) -> Result<()> {
        let mut lost = Vec::new();
        read_salvaging(self.fs(), copying.ino, offset, piece, UNIT_BYTES, &mut |range, error| {
            lost.push((range, error));
        });
        for (range, error) in lost {
            self.lost(&copying.path, range);
            if !std::mem::replace(&mut copying.is_reported, true) {
                self.unreadable(&copying.path, error)?;
            }
        }
        Ok(())
    }
}

/// Data of a file that is being copied.
pub(super) struct Copying {
    ino: Ino,
    path: Vec<u8>,
    runs: VecDeque<Run>,
    /// True if a read error was reported.
    is_reported: bool,
}

impl Copying {
    pub(super) fn new(path: &[u8], ino: Ino, runs: Vec<Run>) -> Self {
        Self { ino, path: path.to_vec(), runs: runs.into(), is_reported: false }
    }

    /// Takes the next piece from the runs.
    fn next_piece(&mut self) -> Option<Run> {
        let run = self.runs.front_mut()?;
        let piece = Run { offset: run.offset, len: run.len.min(READ_BYTES) };
        *run = Run { offset: run.offset + piece.len, len: run.len - piece.len };
        if run.len == 0 {
            self.runs.pop_front();
        }
        Some(piece)
    }
}
