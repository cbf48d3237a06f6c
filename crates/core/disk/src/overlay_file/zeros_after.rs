//! Base of an overlay that is longer: the base, followed by zeros.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::{BlockDevice, ContentKind, check_range};

/// Read-only device of `len` bytes that starts with `below`.
pub(super) struct ZerosAfter {
    pub(super) below: Arc<dyn BlockDevice>,
    pub(super) len: u64,
}

impl ZerosAfter {
    /// Returns how many of `len` bytes at `offset` are those of the base.
    fn count_below(&self, offset: u64, len: u64) -> u64 {
        self.below.len().saturating_sub(offset).min(len)
    }
}

impl BlockDevice for ZerosAfter {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.len, offset, buf.len() as u64)?;
        let count = self.count_below(offset, buf.len() as u64);
        let (before, after) = buf.split_at_mut(count as usize);
        after.fill(0);
        if before.is_empty() { Ok(()) } else { self.below.read_at(offset, before) }
    }

    fn known_zeros(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        check_range(self.len, offset, len).ok()?;
        let count = self.count_below(offset, len);
        let below = if count > 0 { self.below.known_zeros(offset, count) } else { None };
        let after = offset + count..offset + len;
        below.or_else(|| (!after.is_empty()).then_some(after))
    }

    fn has_read_ahead(&self) -> bool {
        self.below.has_read_ahead()
    }

    fn read_ahead(&self, offset: u64, len: u64, content: ContentKind) {
        let len = self.count_below(offset, len);
        if len > 0 {
            self.below.read_ahead(offset, len, content);
        }
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(never_written())
    }

    fn zero_range(&self, _: u64, _: u64) -> io::Result<()> {
        Err(never_written())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

fn never_written() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the base of an overlay is not written")
}
