//! Storage for the contents of compressed layers until the image is built: one unnamed file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::FileAt;

use crate::SourceError;
use crate::content::ArchiveFile;
use crate::host::temporary_file_in;

/// Alignment of small files in the pool, in bytes.
const UNIT: u64 = 512;

/// Alignment of large files in the pool, in bytes: the block size of most hosts, so that blocks can be shared with the
/// image.
const LARGE_UNIT: u64 = 4096;

/// Write buffer size in bytes. Files of at least half of it take the large-file path.
const WRITE_BYTES: usize = 256 << 10;

/// State shared by the layers. Each has its own [`Keeper`].
pub(super) struct Pool {
    archive: Arc<ArchiveFile>,
    /// First free byte.
    end: AtomicU64,
    beside: PathBuf,
    /// Memory used by entries in bytes.
    names: AtomicU64,
}

impl Pool {
    pub(super) fn new(beside: &Path) -> Result<Self, SourceError> {
        let keep = |e| SourceError::io("keep the contents of layers in", beside, e);
        let file = Arc::new(temporary_file_in(beside).map_err(keep)?);
        let archive = Arc::new(ArchiveFile { file, path: "the contents of layers".into() });
        let (end, names) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { archive, end, beside: beside.to_owned(), names })
    }

    /// Returns the file with the contents.
    pub(super) fn archive(&self) -> &Arc<ArchiveFile> {
        &self.archive
    }

    /// Adds memory used by entries. Returns the new total in bytes.
    pub(super) fn add_names(&self, bytes: u64) -> u64 {
        self.names.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes)
    }

    /// Reserves space for `len` bytes; `None` if the file would become too long.
    fn reserve(&self, len: u64) -> Option<u64> {
        let len = len.checked_next_multiple_of(LARGE_UNIT)?;
        let add = |end: u64| end.checked_add(len).filter(|end| i64::try_from(*end).is_ok());
        self.end.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<(), SourceError> {
        let written = self.archive.file.write_all_at(bytes, offset);
        written.map_err(|e| SourceError::io("keep the contents of layers in", &self.beside, e))
    }
}

/// Writes files to the pool. Small files are written together, because several keepers write to one file and the host
/// serialises writes.
pub(super) struct Keeper<'a> {
    pool: &'a Pool,
    /// Buffer of small files that are not written yet.
    buffer: Vec<u8>,
    /// Number of used bytes in the buffer.
    used: usize,
    /// Offset of the buffer in the pool.
    start: u64,
}

impl<'a> Keeper<'a> {
    pub(super) fn new(pool: &'a Pool) -> Self {
        Self { pool, buffer: vec![0; WRITE_BYTES], used: 0, start: 0 }
    }

    /// Stores `len` bytes, which `fill` supplies in order. Returns their offset, valid after [`Self::finish`]; `None`
    /// if the file would become too long.
    pub(super) fn keep(
        &mut self,
        len: u64,
        mut fill: impl FnMut(&mut [u8]) -> Result<(), SourceError>,
    ) -> Result<Option<u64>, SourceError> {
        if len >= WRITE_BYTES as u64 / 2 {
            self.write()?;
            let Some(offset) = self.pool.reserve(len) else { return Ok(None) };
            let mut done = 0;
            while done < len {
                let piece = (len - done).min(WRITE_BYTES as u64) as usize;
                fill(&mut self.buffer[..piece])?;
                self.pool.write(&self.buffer[..piece], offset + done)?;
                done += piece as u64;
            }
            return Ok(Some(offset));
        }
        let len = len as usize;
        if self.used + len > WRITE_BYTES {
            self.write()?;
        }
        if self.used == 0 {
            let Some(start) = self.pool.reserve(WRITE_BYTES as u64) else { return Ok(None) };
            self.start = start;
        }
        let start = self.used;
        fill(&mut self.buffer[start..start + len])?;
        self.used = (start + len).next_multiple_of(UNIT as usize);
        Ok(Some(self.start + start as u64))
    }

    /// Writes the rest of the buffer.
    pub(super) fn finish(mut self) -> Result<(), SourceError> {
        self.write()
    }

    fn write(&mut self) -> Result<(), SourceError> {
        let used = std::mem::take(&mut self.used);
        if used == 0 { Ok(()) } else { self.pool.write(&self.buffer[..used], self.start) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_several_layers_lie_apart() {
        let pool = Pool::new(&std::env::temp_dir()).unwrap();
        let mut keepers = [Keeper::new(&pool), Keeper::new(&pool)];
        let lens = [1, 100_000, 512, 100_000, 70_000, 131_072, 3, 600_000, 131_071, 262_144, 5, 0];
        let mut kept = Vec::new();
        for (number, len) in lens.iter().chain(&lens).enumerate() {
            let bytes: Vec<u8> = (0..*len).map(|at| (at * 7 + number) as u8).collect();
            let mut rest = &bytes[..];
            let fill = |buffer: &mut [u8]| {
                let (now, later) = rest.split_at(buffer.len());
                buffer.copy_from_slice(now);
                rest = later;
                Ok(())
            };
            let offset = keepers[number % 2].keep(*len as u64, fill).unwrap().unwrap();
            kept.push((offset, bytes));
        }
        let [one, other] = keepers;
        one.finish().unwrap();
        other.finish().unwrap();
        for (offset, bytes) in kept {
            let mut found = vec![0; bytes.len()];
            pool.archive().file.read_exact_at(&mut found, offset).unwrap();
            assert!(found == bytes, "{} bytes at {offset}", bytes.len());
            assert!(bytes.len() < WRITE_BYTES / 2 || offset.is_multiple_of(LARGE_UNIT));
        }
        assert_eq!(pool.reserve(u64::MAX), None);
        assert_eq!(Keeper::new(&pool).keep(i64::MAX as u64, |_| Ok(())).unwrap(), None);
    }
}
