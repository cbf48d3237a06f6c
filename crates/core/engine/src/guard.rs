//! A device wrapper that ends all changes after a write error.
//!
//! A failed write may concern data that other code already considers stored, and later writes would probably fail as
//! well, for example on a full host. So it ends all changes, not only those of its caller. Earlier changes may still
//! become durable. After a failed flush or checkpoint nothing is written at all, because the state of the device is
//! unknown. The same holds after a block was refused before it was written, because more may be wrong in memory.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use disk::{BlockDevice, ContentKind, DeviceRole};

use crate::{Corruption, Result};

/// Forwards all requests and records failures.
pub(crate) struct Guard {
    inner: Arc<dyn BlockDevice>,
    /// No further changes are allowed.
    has_ended: AtomicBool,
    /// No further writes are allowed.
    has_failed: AtomicBool,
    /// The refused block, if one is the cause.
    refused: OnceLock<Corruption>,
}

impl Guard {
    pub(crate) fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self {
            inner,
            has_ended: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            refused: OnceLock::new(),
        }
    }

    /// Fails after a write error: nothing may be changed any more.
    pub(crate) fn check_changes(&self) -> Result<()> {
        if self.has_ended.load(Ordering::Relaxed) {
            self.check_refused()?;
            return Err(ended().into());
        }
        Ok(())
    }

    /// Fails like [`Guard::check_writes`]; returns the refused block if there is one.
    pub(crate) fn check_checkpoint(&self) -> Result<()> {
        if self.has_failed.load(Ordering::Relaxed) {
            self.check_refused()?;
        }
        Ok(self.check_writes()?)
    }

    fn check_refused(&self) -> Result<()> {
        self.refused.get().map_or(Ok(()), |fault| Err(fault.clone().into()))
    }

    /// Ends all changes because of `fault`, which later changes return as their error.
    pub(crate) fn refuse(&self, fault: &Corruption) {
        self.refused.get_or_init(|| fault.clone());
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Fails after a failed flush or checkpoint: nothing may be written any more.
    fn check_writes(&self) -> io::Result<()> {
        if self.has_failed.load(Ordering::Relaxed) {
            return Err(io::Error::other(
                "an earlier write failed or the file system was shut down; no more writes are \
                 accepted",
            ));
        }
        Ok(())
    }

    /// Ends all writes.
    pub(crate) fn fail(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
        self.has_ended.store(true, Ordering::Relaxed);
    }

    fn watch(&self, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.check_writes()?;
        write().inspect_err(|_| self.has_ended.store(true, Ordering::Relaxed))
    }
}

fn ended() -> io::Error {
    io::Error::other(
        "an earlier write failed or the file system was shut down; no more changes are accepted",
    )
}

impl BlockDevice for Guard {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn part_len(&self, part: DeviceRole) -> Option<u64> {
        self.inner.part_len(part)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn in_file(&self, offset: u64, len: u64) -> Option<(&File, u64)> {
        self.inner.in_file(offset, len)
    }

    fn has_read_ahead(&self) -> bool {
        self.inner.has_read_ahead()
    }

    fn read_ahead(&self, offset: u64, len: u64, content: ContentKind) {
        self.inner.read_ahead(offset, len, content);
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.watch(|| self.inner.write_at(offset, data))
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.watch(|| self.inner.zero_range(offset, len))
    }

    /// A failed discard ends nothing, because the contents are not needed.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.has_ended.load(Ordering::Relaxed) {
            return Err(ended());
        }
        self.inner.discard(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.check_writes()?;
        self.inner.flush().inspect_err(|_| self.fail())
    }

    fn has_long_flushes(&self) -> bool {
        self.inner.has_long_flushes()
    }

    fn barrier(&self) -> io::Result<()> {
        self.check_writes()?;
        self.inner.barrier().inspect_err(|_| self.fail())
    }
}
