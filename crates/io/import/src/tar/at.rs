//! A shared file with a separate position.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use disk::FileAt;

/// Reads a file from its start. The position is independent of other users of the file.
pub(super) struct FileReader {
    file: Arc<File>,
    offset: u64,
}

impl FileReader {
    pub(super) fn new(file: Arc<File>) -> Self {
        Self { file, offset: 0 }
    }
}

impl Read for FileReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(buf, self.offset)?;
        self.offset += n as u64;
        Ok(n)
    }
}

impl Seek for FileReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let offset = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => self.offset.checked_add_signed(by),
            SeekFrom::End(by) => self.file.metadata()?.len().checked_add_signed(by),
        };
        let before_the_start = || io::Error::from(io::ErrorKind::InvalidInput);
        self.offset = offset.ok_or_else(before_the_start)?;
        Ok(self.offset)
    }
}
