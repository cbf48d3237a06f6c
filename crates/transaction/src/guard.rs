//! The device, watched: once something could not be written, nothing is changed any more.
//!
//! A write that fails may be of data that somebody already took for kept, and those to come would most
//! likely fail as well: a host that is out of space. So it ends all changes, not only those of its caller. What was
//! done before may still become durable; but not once a flush or a checkpoint failed, for then nobody knows
//! what the device has. Nor once a block was refused that was about to be written: what else is wrong in
//! memory is not known either.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use blockdev::BlockDevice;

use crate::{Corruption, Result};

/// Passes everything through, and remembers what failed.
pub(crate) struct Guard {
    inner: Arc<dyn BlockDevice>,
    /// Nothing is changed any more.
    has_ended: AtomicBool,
    /// Nothing is written any more.
    has_failed: AtomicBool,
    /// The block that was refused, if that is why.
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

    /// Fails once something could not be written: nothing may be changed any more.
    pub(crate) fn check_changes(&self) -> Result<()> {
        if self.has_ended.load(Ordering::Relaxed) {
            self.check_refused()?;
            return Err(ended().into());
        }
        Ok(())
    }

    /// Fails as [`Guard::check_writes`] does, with what was refused if something was.
    pub(crate) fn check_checkpoint(&self) -> Result<()> {
        if self.has_failed.load(Ordering::Relaxed) {
            self.check_refused()?;
        }
        Ok(self.check_writes()?)
    }

    fn check_refused(&self) -> Result<()> {
        self.refused.get().map_or(Ok(()), |fault| Err(fault.clone().into()))
    }

    /// Ends all changes because of `fault`, which is what they fail with from now on.
    pub(crate) fn refuse(&self, fault: &Corruption) {
        self.refused.get_or_init(|| fault.clone());
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Fails once a flush or a checkpoint failed: nothing may be written any more.
    fn check_writes(&self) -> io::Result<()> {
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

fn ended() -> io::Error {
    io::Error::other("an earlier write failed, or it was shut down: nothing is changed any more")
}

impl BlockDevice for Guard {
    fn len(&self) -> u64 {
        self.inner.len()
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

    fn read_ahead(&self, offset: u64, len: u64) {
        self.inner.read_ahead(offset, len);
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.watch(|| self.inner.write_at(offset, data))
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.watch(|| self.inner.zero_range(offset, len))
    }

    /// One that fails ends nothing: nobody needs what is there.
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
