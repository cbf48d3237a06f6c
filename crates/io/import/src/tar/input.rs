//! The uncompressed bytes of an archive, in order.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use disk::FileAt;
use parking_lot::Mutex;

use super::at::FileReader;
use super::compress::{Compression, Gzip, MAGIC_LEN, Zstd, expanded_max};
use super::readahead::ReadAhead;
use crate::content::ArchiveFile;
use crate::{Damage, Progress, SourceError, Unsupported};

/// Read size of an archive in bytes.
const BUFFER_BYTES: usize = 128 << 10;

/// The bytes of an archive, and the number of consumed ones.
pub(super) struct Input {
    bytes: Bytes,
    archive: Arc<ArchiveName>,
    /// Number of uncompressed bytes consumed.
    pub(super) offset: u64,
    tap: Arc<Tap>,
    /// Stored length of the archive, if it is a regular file.
    stored_len: Option<u64>,
    is_compressed: bool,
    /// True if nothing is read behind the end of the archive.
    stops_at_end: bool,
}

/// Name of an archive in errors.
type ArchiveName = std::path::PathBuf;

enum Bytes {
    /// An uncompressed regular file.
    File {
        reader: BufReader<FileReader>,
        archive: Arc<ArchiveFile>,
        len: u64,
    },
    Stream(Box<dyn Read + Send>),
}

/// State observed while the stored bytes are passed to a decoder.
#[derive(Default)]
struct Tap {
    read: AtomicU64,
    /// The host's error, which decoders may not forward unchanged.
    error: Mutex<Option<io::Error>>,
    /// Destination of a copy.
    copy: Option<Arc<File>>,
    copy_error: Mutex<Option<io::Error>>,
    /// True after the end of the archive, which is followed by bytes that are not copied.
    is_over: AtomicBool,
    /// The limit of decompression that was exceeded; 0 if none.
    passed_limit: AtomicU64,
}

impl Tap {
    fn copying_to(copy: Option<Arc<File>>) -> Self {
        Self { copy, ..Self::default() }
    }

    /// Copies bytes that were read.
    fn copy(&self, bytes: &[u8]) -> io::Result<()> {
        let Some(mut copy) = self.copy.as_deref() else { return Ok(()) };
        if self.is_over.load(Ordering::Relaxed) {
            return Ok(());
        }
        copy.write_all(bytes).map_err(|e| {
            let passed_on = io::Error::from(e.kind());
            *self.copy_error.lock() = Some(e);
            passed_on
        })
    }
}

struct Tapped<R> {
    inner: R,
    tap: Arc<Tap>,
}

impl<R: Read> Read for Tapped<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buf) {
            Ok(n) => {
                self.tap.read.fetch_add(n as u64, Ordering::Relaxed);
                self.tap.copy(&buf[..n])?;
                Ok(n)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Err(e),
            Err(e) => {
                let passed_on = io::Error::from(e.kind());
                *self.tap.error.lock() = Some(e);
                Err(passed_on)
            }
        }
    }
}

/// Enforces the limit of decompression.
struct Expanding<R> {
    inner: R,
    tap: Arc<Tap>,
    /// Number of decompressed bytes.
    bytes: u64,
}

impl<R: Read> Read for Expanding<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.bytes += n as u64;
        let limit = expanded_max(self.tap.read.load(Ordering::Relaxed));
        if self.bytes > limit {
            self.tap.passed_limit.store(limit, Ordering::Relaxed);
            return Err(io::Error::other("the archive is too large"));
        }
        Ok(n)
    }
}

impl Input {
    /// Opens the archive at `path`.
    pub(super) fn open(path: &Path) -> Result<Self, SourceError> {
        let io = |operation| move |e: io::Error| SourceError::io(operation, path, e);
        let file = File::open(path).map_err(io("open"))?;
        let metadata = file.metadata().map_err(io("open"))?;
        if !metadata.is_file() {
            return Self::stream(file, path, None);
        }
        Self::of_file(Arc::new(file), path)
    }

    /// Reads the copy that another input made of its stream. `name` is used in errors. The copy does not contain bytes
    /// behind the archive.
    pub(super) fn of_copy(file: Arc<File>, name: &Path) -> Result<Self, SourceError> {
        let mut input = Self::of_file(file, name)?;
        input.stops_at_end = true;
        Ok(input)
    }

    fn of_file(file: Arc<File>, path: &Path) -> Result<Self, SourceError> {
        let io = |operation| move |e: io::Error| SourceError::io(operation, path, e);
        let len = file.metadata().map_err(io("open"))?.len();
        let mut head = [0; MAGIC_LEN];
        let head_len = file.read_at(&mut head, 0).map_err(io("read"))?;
        let reader = FileReader::new(Arc::clone(&file));
        if Compression::of(&head[..head_len]) != Compression::None {
            let mut input = Self::stream(reader, path, None)?;
            input.stored_len = Some(len);
            return Ok(input);
        }
        let archive = Arc::new(ArchiveFile { file, path: path.to_owned() });
        let reader = BufReader::with_capacity(BUFFER_BYTES, reader);
        Ok(Self {
            bytes: Bytes::File { reader, archive, len },
            archive: Arc::new(path.to_owned()),
            offset: 0,
            tap: Arc::default(),
            stored_len: Some(len),
            is_compressed: false,
            stops_at_end: false,
        })
    }

    /// Reads an archive from a stream and copies it. `name` is used in errors.
    pub(super) fn stream(
        mut stream: impl Read + Send + 'static,
        name: &Path,
        copy: Option<Arc<File>>,
    ) -> Result<Self, SourceError> {
        let io = |e| SourceError::io("read", name, e);
        let mut head = [0; MAGIC_LEN];
        let head_len = fill(&mut stream, &mut head).map_err(io)?;
        let tap = Arc::new(Tap::copying_to(copy));
        let inner = Cursor::new(head).take(head_len as u64).chain(stream);
        let tapped = Tapped { inner, tap: tap.clone() };
        let buffered = BufReader::with_capacity(BUFFER_BYTES, tapped);
        let compression = Compression::of(&head[..head_len]);
        let decoded = |decoder: Box<dyn Read + Send>| -> Result<Box<dyn Read + Send>, SourceError> {
            let limited = Expanding { inner: decoder, tap: Arc::clone(&tap), bytes: 0 };
            Ok(Box::new(ReadAhead::start(Box::new(limited)).map_err(io)?))
        };
        let stream: Box<dyn Read + Send> = match compression {
            Compression::None => Box::new(buffered),
            Compression::Gzip => decoded(Box::new(Gzip::new(buffered)))?,
            Compression::Zstd => decoded(Box::new(Zstd::new(buffered)))?,
            Compression::Other(compression) => {
                return Err(SourceError::Unsupported {
                    archive: name.to_owned(),
                    offset: 0,
                    entry: None,
                    feature: Unsupported::Compression(compression),
                });
            }
        };
        Ok(Self {
            bytes: Bytes::Stream(stream),
            archive: Arc::new(name.to_owned()),
            offset: 0,
            tap,
            stored_len: None,
            is_compressed: compression != Compression::None,
            stops_at_end: false,
        })
    }

    /// Reads an uncompressed stream. `name` is used in errors.
    pub(super) fn plain(stream: impl Read + Send + 'static, name: &Path) -> Self {
        Self {
            bytes: Bytes::Stream(Box::new(stream)),
            archive: Arc::new(name.to_owned()),
            offset: 0,
            tap: Arc::default(),
            stored_len: None,
            is_compressed: false,
            stops_at_end: false,
        }
    }

    pub(super) fn is_compressed(&self) -> bool {
        self.is_compressed
    }

    pub(super) fn name(&self) -> &Path {
        &self.archive
    }

    /// Returns the file for random access to contents, if the archive is an uncompressed file.
    pub(super) fn archive_file(&self) -> Option<&Arc<ArchiveFile>> {
        match &self.bytes {
            Bytes::File { archive, .. } => Some(archive),
            Bytes::Stream(_) => None,
        }
    }

    pub(super) fn progress(&self) -> Progress {
        let done = match self.bytes {
            Bytes::File { .. } => self.offset,
            Bytes::Stream(_) => self.tap.read.load(Ordering::Relaxed),
        };
        Progress { done, total: self.stored_len }
    }

    /// Reads until `buf` is full or the archive ends. Returns the number of bytes.
    pub(super) fn read(&mut self, buf: &mut [u8]) -> Result<usize, SourceError> {
        let result = match &mut self.bytes {
            Bytes::File { reader, .. } => fill(reader, buf),
            Bytes::Stream(stream) => fill(stream, buf),
        };
        let n = result.map_err(|e| self.error(e))?;
        self.offset += n as u64;
        Ok(n)
    }

    /// Returns whether `len` more bytes may exist. For a stream this is unknown before reading.
    pub(super) fn may_have(&self, len: u64) -> bool {
        match &self.bytes {
            Bytes::File { len: end, .. } => len <= end.saturating_sub(self.offset),
            Bytes::Stream(_) => true,
        }
    }

    /// Skips `len` bytes. Returns false if the archive ends before.
    pub(super) fn skip(&mut self, len: u64) -> Result<bool, SourceError> {
        let result = match &mut self.bytes {
            Bytes::File { reader, len: end, .. } => match i64::try_from(len) {
                Ok(distance) if self.offset.checked_add(len).is_some_and(|at| at <= *end) => {
                    reader.seek_relative(distance).map(|()| len)
                }
                _ => return Ok(false),
            },
            Bytes::Stream(stream) => io::copy(&mut stream.take(len), &mut io::sink()),
        };
        let skipped = result.map_err(|e| self.error(e))?;
        self.offset += skipped;
        Ok(skipped == len)
    }

    /// Reads a stream to its end, so that its writer can finish and checksums behind the archive are verified.
    pub(super) fn drain(&mut self) -> Result<(), SourceError> {
        self.tap.is_over.store(true, Ordering::Relaxed);
        if self.stops_at_end {
            return Ok(());
        }
        if let Bytes::Stream(stream) = &mut self.bytes {
            io::copy(stream, &mut io::sink()).map_err(|e| self.error(e))?;
        }
        Ok(())
    }

    /// Distinguishes the host's errors from those of a decoder.
    fn error(&self, error: io::Error) -> SourceError {
        let archive = self.archive.to_path_buf();
        if let Some(source) = self.tap.copy_error.lock().take() {
            return SourceError::Copy { archive, source };
        }
        if let Some(source) = self.tap.error.lock().take() {
            return SourceError::Io { operation: "read", path: archive, source };
        }
        let limit = self.tap.passed_limit.load(Ordering::Relaxed);
        if limit > 0 {
            let stored = self.tap.read.load(Ordering::Relaxed);
            let (offset, feature) = (self.offset, Unsupported::Expands { stored, limit });
            return SourceError::Unsupported { archive, offset, entry: None, feature };
        }
        let damage = match error.kind() {
            _ if error.raw_os_error().is_some() => {
                return SourceError::Io { operation: "read", path: archive, source: error };
            }
            io::ErrorKind::UnexpectedEof => Damage::Truncated,
            _ => Damage::Compression(error.to_string()),
        };
        SourceError::Damaged { archive, offset: self.offset, entry: None, damage }
    }
}

/// Reads until `buf` is full or the reader ends.
fn fill(reader: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match reader.read(&mut buf[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decompression_bombs_are_stopped() {
        let tap = Arc::new(Tap::default());
        tap.read.store(5, Ordering::Relaxed);
        let bomb = Expanding { inner: io::repeat(0), tap: Arc::clone(&tap), bytes: 0 };
        let mut input = Input::plain(bomb, Path::new("bomb.tar.zst"));
        input.tap = tap;
        let limit = (1 << 30) + 5 * 1024;
        assert!(input.skip(limit - (1 << 20)).unwrap());
        let error = input.skip(2 << 20).unwrap_err();
        let SourceError::Unsupported { feature, .. } = &error else { panic!("{error}") };
        assert_eq!(*feature, Unsupported::Expands { stored: 5, limit });
        let said = error.to_string();
        assert!(said.contains("\"bomb.tar.zst\"") && said.contains("zstd -dc"), "{said}");
    }
}
