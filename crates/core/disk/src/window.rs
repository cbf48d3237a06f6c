//! Part of a device: an image inside a disk.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::{BlockDevice, ContentKind, check_range, moved};

/// The bytes `start..start + len` of another device.
pub struct WindowDevice {
    inner: Arc<dyn BlockDevice>,
    start: u64,
    len: u64,
}

impl WindowDevice {
    /// Creates a window onto `inner`. Fails if it exceeds the device.
    pub fn new(inner: Arc<dyn BlockDevice>, start: u64, len: u64) -> io::Result<Self> {
        check_range(inner.len(), start, len)?;
        Ok(Self { inner, start, len })
    }
}

impl BlockDevice for WindowDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.len, offset, buf.len() as u64)?;
        self.inner.read_at(self.start + offset, buf)
    }

    fn in_file(&self, offset: u64, len: u64) -> Option<(&File, u64)> {
        check_range(self.len, offset, len).ok()?;
        self.inner.in_file(self.start + offset, len)
    }

    fn known_unreadable(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        check_range(self.len, offset, len).ok()?;
        let found = self.inner.known_unreadable(self.start + offset, len)?;
        Some(found.start - self.start..found.end - self.start)
    }

    fn known_zeros(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        check_range(self.len, offset, len).ok()?;
        let found = self.inner.known_zeros(self.start + offset, len)?;
        Some(moved(found, self.start, 0))
    }

    fn has_read_ahead(&self) -> bool {
        self.inner.has_read_ahead()
    }

    fn read_ahead(&self, offset: u64, len: u64, content: ContentKind) {
        let len = len.min(self.len.saturating_sub(offset));
        if len > 0 {
            self.inner.read_ahead(self.start + offset, len, content);
        }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        check_range(self.len, offset, data.len() as u64)?;
        self.inner.write_at(self.start + offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self.len, offset, len)?;
        self.inner.zero_range(self.start + offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self.len, offset, len)?;
        self.inner.discard(self.start + offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn has_long_flushes(&self) -> bool {
        self.inner.has_long_flushes()
    }

    fn drop_cache(&self, offset: u64, len: u64) {
        if check_range(self.len, offset, len).is_ok() {
            self.inner.drop_cache(self.start + offset, len);
        }
    }

    fn barrier(&self) -> io::Result<()> {
        self.inner.barrier()
    }
}
