//! Files as scripts use them.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, SeekFrom, seek};

/// A new file that can be read and written.
pub(super) fn create(path: &Path) -> File {
    File::options().create(true).truncate(true).read(true).write(true).open(path).unwrap()
}

/// A file that is there, opened past the cache.
pub(super) fn open_direct(path: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECT.bits().cast_signed();
    File::options().read(true).write(true).custom_flags(flags).open(path)
}

/// All that a file holds, as a reader at position 0 gets it.
pub(super) fn contents(file: &File) -> io::Result<Vec<u8>> {
    let len = file.metadata()?.len();
    let mut bytes = vec![0; usize::try_from(len).expect("scripts make small files")];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// A buffer that begins at a page, and the place in it where that is.
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

/// Where data lies, as `start-end` pairs, asked for from the beginning.
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
