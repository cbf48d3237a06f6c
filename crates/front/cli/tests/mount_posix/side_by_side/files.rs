//! File helpers for scripts.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, SeekFrom, seek};

/// Creates a file that is open for reading and writing.
pub(super) fn create(path: &Path) -> File {
    File::options().create(true).truncate(true).read(true).write(true).open(path).unwrap()
}

/// Opens an existing file for direct I/O.
pub(super) fn open_direct(path: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECT.bits().cast_signed();
    File::options().read(true).write(true).custom_flags(flags).open(path)
}

/// Returns the whole contents of a file.
pub(super) fn contents(file: &File) -> io::Result<Vec<u8>> {
    let len = file.metadata()?.len();
    let mut bytes = vec![0; usize::try_from(len).expect("scripts make small files")];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// A buffer with page-aligned contents.
pub(super) struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    const ALIGNMENT: usize = 4096;

    pub(super) fn new(len: usize, byte: u8) -> Self {
        let bytes = vec![byte; len + Self::ALIGNMENT];
        let start = bytes.as_ptr().align_offset(Self::ALIGNMENT);
        Self { bytes, start, len }
    }

    pub(super) fn of(contents: &[u8]) -> Self {
        let mut aligned = Self::new(contents.len(), 0);
        aligned.as_mut().copy_from_slice(contents);
        aligned
    }

    pub(super) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }

    pub(super) fn as_ref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

/// Returns the data extents as `start-end` pairs, found from the start with `SEEK_DATA` and
/// `SEEK_HOLE`.
pub(super) fn data_runs(file: &File) -> String {
    let mut runs = Vec::new();
    let mut at = 0;
    while let Ok(start) = seek(file, SeekFrom::Data(at)) {
        let end = seek(file, SeekFrom::Hole(start)).expect("data ends somewhere");
        runs.push(format!("{start}-{end}"));
        at = end;
    }
    runs.join(" ")
}
