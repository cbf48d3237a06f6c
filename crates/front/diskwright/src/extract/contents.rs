//! Data of a file in an image, without holes.

use vfs::Ino;
pub(crate) use vfs::runs::{Run, data_runs, read_exactly};

use super::Job;
use crate::Result;

/// Bytes read at a time.
const READ_BYTES: u64 = 1 << 20;

impl Job<'_> {
    /// Returns the data runs of a file. On a read error with `keep_going`, returns none.
    pub(super) fn data_runs(&mut self, path: &[u8], ino: Ino, size: u64) -> Result<Vec<Run>> {
        match data_runs(self.fs(), ino, size) {
            Ok(runs) => Ok(runs),
            Err(e) => self.unreadable(path, e).map(|()| Vec::new()),
        }
    }

    /// Passes on the data of a file in pieces with their offsets. With `keep_going`, unreadable data is replaced by
    /// zeros.
    pub(super) fn copy_runs(
        &mut self,
        path: &[u8],
        ino: Ino,
        runs: &[Run],
        buffer: &mut Vec<u8>,
        each: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut is_reported = false;
        for run in runs {
            let mut done = 0;
            while done < run.len {
                let len = (run.len - done).min(READ_BYTES) as usize;
                if buffer.len() < len {
                    buffer.resize(len, 0);
                }
                let (piece, offset) = (&mut buffer[..len], run.offset + done);
                if let Err(error) = read_exactly(self.fs(), ino, offset, piece) {
                    if !self.options.keep_going || !is_reported {
                        self.unreadable(path, error)?;
                        is_reported = true;
                    }
                    piece.fill(0);
                }
                each(offset, piece)?;
                self.report.bytes += len as u64;
                self.observer.copied(len as u64);
                done += len as u64;
            }
        }
        Ok(())
    }
}
