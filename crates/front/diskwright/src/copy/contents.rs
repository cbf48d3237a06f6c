//! Contents of files to be copied into an image.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use disk::FileAt;
use import::{Body, Content};
use vfs::runs::{data_runs, read_exactly};
use vfs::{FileSystem, Ino};

use crate::{Error, Result, host};

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;

/// Receiver of a piece of a file, with its offset.
pub(crate) type Each<'a> = &'a mut dyn FnMut(u64, &[u8]) -> Result<()>;

/// Contents of a regular file.
pub(crate) trait Contents {
    /// Passes the data in pieces, without holes. Returns the size.
    fn copy(&self, each: Each<'_>) -> Result<u64>;

    /// Returns the file if it is in `fs`, where a copy can share its blocks.
    fn file_in(&self, _fs: &dyn FileSystem) -> Option<Ino> {
        None
    }
}

/// Passes the bytes `offset..offset + len` as returned by `read`.
fn pieces(
    offset: u64,
    len: u64,
    each: Each<'_>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let mut buffer = vec![0; len.min(READ_BYTES as u64) as usize];
    let mut done = 0;
    while done < len {
        let piece = (len - done).min(READ_BYTES as u64) as usize;
        read(offset + done, &mut buffer[..piece])?;
        each(offset + done, &buffer[..piece])?;
        done += piece as u64;
    }
    Ok(())
}

impl Contents for Content {
    fn copy(&self, each: Each<'_>) -> Result<u64> {
        if let Body::Detached(body) = self.body() {
            let file = body.open()?;
            for run in self.runs() {
                pieces(run.offset, run.len, each, |at, buf| Ok(file.read_at(at, buf)?))?;
            }
            file.finish()?;
        }
        Ok(self.size())
    }
}

/// Host file that is named as a source.
pub(super) struct HostFile<'a> {
    pub(super) file: File,
    pub(super) path: &'a Path,
    pub(super) size: u64,
}

impl Contents for HostFile<'_> {
    fn copy(&self, each: Each<'_>) -> Result<u64> {
        let failed = |e: std::io::Error| Error::host("read", self.path, e);
        // Files of /proc report a size of 0, so they must be read to the end.
        if self.size == 0 || !self.file.metadata().map_err(failed)?.is_file() {
            return self.copy_stream(each);
        }
        let mut at = 0;
        while at < self.size {
            let Some((start, end)) = host::next_data(&self.file, at, self.size) else { break };
            pieces(start, end - start, each, |at, buf| {
                self.file.read_exact_at(buf, at).map_err(|error| match error.kind() {
                    std::io::ErrorKind::UnexpectedEof => {
                        failed(std::io::Error::other("it was truncated during the copy"))
                    }
                    _ => failed(error),
                })
            })?;
            at = end;
        }
        Ok(self.size)
    }
}

impl HostFile<'_> {
    /// Copies a pipe, a device, or a file of unknown size to its end.
    fn copy_stream(&self, each: Each<'_>) -> Result<u64> {
        let mut buffer = vec![0; READ_BYTES];
        let mut done = 0;
        loop {
            let count = (&self.file).read(&mut buffer);
            let count = count.map_err(|e| Error::host("read", self.path, e))?;
            if count == 0 {
                return Ok(done);
            }
            each(done, &buffer[..count])?;
            done += count as u64;
        }
    }
}

/// File of an image.
pub(super) struct ImageFile<'a> {
    pub(super) fs: &'a dyn FileSystem,
    pub(super) ino: Ino,
    pub(super) size: u64,
    pub(super) path: &'a [u8],
}

impl Contents for ImageFile<'_> {
    fn copy(&self, each: Each<'_>) -> Result<u64> {
        let failed = |e| Error::file(self.path, e);
        for run in data_runs(self.fs, self.ino, self.size).map_err(failed)? {
            pieces(run.offset, run.len, each, |at, buf| {
                read_exactly(self.fs, self.ino, at, buf).map_err(failed)
            })?;
        }
        Ok(self.size)
    }

    fn file_in(&self, fs: &dyn FileSystem) -> Option<Ino> {
        std::ptr::addr_eq(self.fs, fs).then_some(self.ino)
    }
}
