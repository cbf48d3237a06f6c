//! How much is read.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use blockdev::BlockDevice;

/// A device that counts what is read from it, and is not written to.
pub(super) struct Meter {
    inner: Arc<dyn BlockDevice>,
    bytes_read: AtomicU64,
}

impl Meter {
    pub(super) fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self { inner, bytes_read: AtomicU64::new(0) }
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }
}

/// What a write answers. The file is open for reading only, so it would fail anyway.
fn refused() -> io::Result<()> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl BlockDevice for Meter {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.bytes_read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.inner.read_at(offset, buf)
    }

    fn has_read_ahead(&self) -> bool {
        self.inner.has_read_ahead()
    }

    fn read_ahead(&self, offset: u64, len: u64) {
        self.inner.read_ahead(offset, len);
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        refused()
    }

    fn zero_range(&self, _: u64, _: u64) -> io::Result<()> {
        refused()
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
