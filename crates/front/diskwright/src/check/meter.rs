//! Device that counts bytes read and records the first read error.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use disk::{BlockDevice, ContentKind, DeviceRole, end_at};

use crate::{Error, Outcome};

/// Device that counts bytes read. It records the first read error, because findings caused by it do not describe the
/// image.
pub(crate) struct Meter {
    inner: Arc<dyn BlockDevice>,
    is_writable: bool,
    bytes_read: AtomicU64,
    reads_failed: AtomicU64,
    first_error: OnceLock<String>,
}

impl Meter {
    /// Wraps a device for reading.
    pub(super) fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self { is_writable: false, ..Self::writable(inner) }
    }

    /// Wraps a device for reading and writing.
    pub(crate) fn writable(inner: Arc<dyn BlockDevice>) -> Self {
        Self {
            inner,
            is_writable: true,
            bytes_read: AtomicU64::new(0),
            reads_failed: AtomicU64::new(0),
            first_error: OnceLock::new(),
        }
    }

    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Returns the number of failed reads within the device.
    pub(crate) fn reads_failed(&self) -> u64 {
        self.reads_failed.load(Ordering::Acquire)
    }

    /// Returns the first read error with its offset.
    pub(crate) fn first_error(&self) -> Option<&str> {
        self.first_error.get().map(String::as_str)
    }

    /// Returns the device error instead of an error about contents that it may have caused.
    pub(crate) fn blame(&self, path: &Path, error: Error) -> Error {
        match (self.first_error(), error.outcome()) {
            (Some(failure), Outcome::Image | Outcome::No) => {
                Error::host("read", path, io::Error::other(failure))
            }
            _ => error,
        }
    }

    fn note(&self, offset: u64, len: usize, error: &io::Error) {
        // Reads past the end mean that the image is truncated, not that the device failed.
        if offset.checked_add(len as u64).is_none_or(|end| end > end_at(self, offset)) {
            return;
        }
        self.first_error.get_or_init(|| format!("reading {len} bytes at {offset}: {error}"));
        self.reads_failed.fetch_add(1, Ordering::Release);
    }

    /// Rejects writes to an image that is open for reading.
    fn check_writable(&self) -> io::Result<()> {
        if self.is_writable { Ok(()) } else { Err(io::ErrorKind::ReadOnlyFilesystem.into()) }
    }
}

impl BlockDevice for Meter {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn part_len(&self, part: DeviceRole) -> Option<u64> {
        self.inner.part_len(part)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.bytes_read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.inner.read_at(offset, buf).inspect_err(|error| self.note(offset, buf.len(), error))
    }

    fn has_read_ahead(&self) -> bool {
        self.inner.has_read_ahead()
    }

    fn read_ahead(&self, offset: u64, len: u64, content: ContentKind) {
        self.inner.read_ahead(offset, len, content);
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check_writable()?;
        self.inner.write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_writable()?;
        self.inner.zero_range(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        if self.is_writable { self.inner.flush() } else { Ok(()) }
    }

    fn has_long_flushes(&self) -> bool {
        self.inner.has_long_flushes()
    }

    fn drop_cache(&self, offset: u64, len: u64) {
        self.inner.drop_cache(offset, len);
    }

    fn barrier(&self) -> io::Result<()> {
        if self.is_writable { self.inner.barrier() } else { Ok(()) }
    }
}
