//! The device, watched: once something could not be written, nothing is changed any more.
//!
//! A write that fails may be of data that somebody already took for kept, and those to come would most
//! likely fail as well: a host that is out of space. So it ends all changes, whoever asked for it. What was
//! done before may still become durable; but not once a flush or a checkpoint failed, for then nobody knows
//! what the device has.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use blockdev::BlockDevice;

/// Passes everything through, and remembers what failed.
pub(crate) struct Guard {
    inner: Arc<dyn BlockDevice>,
    /// Nothing is changed any more.
    has_ended: AtomicBool,
    /// Nothing is written any more.
    has_failed: AtomicBool,
}

impl Guard {
    pub(crate) fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self { inner, has_ended: AtomicBool::new(false), has_failed: AtomicBool::new(false) }
    }

    /// Fails once something could not be written: nothing may be changed any more.
    pub(crate) fn check_changes(&self) -> io::Result<()> {
        if self.has_ended.load(Ordering::Relaxed) {
            return Err(io::Error::other("an earlier write failed; nothing is changed any more"));
        }
        Ok(())
    }

    /// Fails once a flush or a checkpoint failed: nothing may be written any more.
    pub(crate) fn check_writes(&self) -> io::Result<()> {
        if self.has_failed.load(Ordering::Relaxed) {
            return Err(io::Error::other(
                "an earlier write failed, or it was shut down: nothing more is written",
            ));
        }
        Ok(())
    }

    /// Ends all writing.
    pub(crate) fn fail(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
        self.has_ended.store(true, Ordering::Relaxed);
    }

    fn watch(&self, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.check_writes()?;
        write().inspect_err(|_| self.has_ended.store(true, Ordering::Relaxed))
    }
}

impl BlockDevice for Guard {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.watch(|| self.inner.write_at(offset, data))
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.watch(|| self.inner.zero_range(offset, len))
    }

    /// One that fails loses nothing.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_writes()?;
        self.inner.discard(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.check_writes()?;
        self.inner.flush().inspect_err(|_| self.fail())
    }
}
