//! The data of a file in an image, without its holes.

use std::ops::ControlFlow;

use vfs::{Corruption, ExtentPlace, FileSystem, Ino};

use super::Job;
use crate::Result;

/// Bytes read at a time.
const READ_BYTES: u64 = 1 << 20;

/// A run of a file's bytes that are not a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// Where a file of `size` bytes has data: in order, apart from each other, within the size.
pub(crate) fn data_runs(fs: &dyn FileSystem, ino: Ino, size: u64) -> vfs::Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    let mut is_ordered = true;
    let mut position = 0;
    fs.extent_map(ino, 0, size, &mut |extent| {
        let end = extent.offset.checked_add(extent.len).filter(|&end| end <= size);
        let Some(end) = end.filter(|_| extent.offset >= position && extent.len > 0) else {
            is_ordered = false;
            return ControlFlow::Break(());
        };
        position = end;
        if matches!(extent.place, ExtentPlace::Device(_) | ExtentPlace::Inline) {
            match runs.last_mut() {
                Some(last) if last.offset + last.len == extent.offset => last.len += extent.len,
                _ => runs.push(Run { offset: extent.offset, len: extent.len }),
            }
        }
        ControlFlow::Continue(())
    })?;
    if !is_ordered {
        let problem = "runs overlap or lie past the end of the file";
        return Err(Corruption::new("extent map", problem).of_inode(ino.0).into());
    }
    Ok(runs)
}

impl Job<'_> {
    /// Where a file has data; nowhere if that cannot be read and it is told to keep going.
    pub(super) fn data_runs(&mut self, path: &[u8], ino: Ino, size: u64) -> Result<Vec<Run>> {
        match data_runs(self.fs(), ino, size) {
            Ok(runs) => Ok(runs),
            Err(e) => self.unreadable(path, e).map(|()| Vec::new()),
        }
    }

    /// Hands over the data of a file in pieces, with their offsets. If it is told to keep going,
    /// what cannot be read comes as zeros.
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

/// Fills `buf` from `offset` on, which must lie within the file.
pub(crate) fn read_exactly(
    fs: &dyn FileSystem,
    ino: Ino,
    offset: u64,
    buf: &mut [u8],
) -> vfs::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match fs.read(ino, offset + done as u64, &mut buf[done..])? {
            0 => {
                let damage = Corruption::new("file contents", "end before the file's size");
                return Err(damage.of_inode(ino.0).into());
            }
            count => done += count,
        }
    }
    Ok(())
}
