//! Block devices of the kernel.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use disk::BlockDevice;
use linux::Errno;
use linux::ublk::{Disk, DiskOptions, UblkDevice};

/// A block device of the kernel with the contents of a device.
pub(super) struct Server {
    kernel: UblkDevice,
    contents: Contents,
}

struct Contents {
    device: Arc<dyn BlockDevice>,
    read_only: bool,
}

impl Server {
    /// Adds a block device.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub(super) fn add(
        device: Arc<dyn BlockDevice>,
        queues: u16,
        read_only: bool,
    ) -> io::Result<Self> {
        let kernel = UblkDevice::add(DiskOptions { len: device.len(), read_only, queues })?;
        Ok(Self { kernel, contents: Contents { device, read_only } })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.kernel.path()
    }

    /// Answers requests until `stop` is set, then makes all writes durable.
    ///
    /// # Errors
    /// If the device cannot be started, or the image cannot be written.
    pub(super) fn serve(&mut self, started: &mut dyn FnMut(), stop: &AtomicBool) -> io::Result<()> {
        let served = self.kernel.serve(&self.contents, started, stop);
        let flushed = if self.contents.read_only { Ok(()) } else { self.contents.device.flush() };
        served.and(flushed)
    }
}

impl Contents {
    /// Checks that the device may be written. The kernel rejects writes of a read-only device itself.
    fn check_writable(&self) -> Result<(), Errno> {
        if self.read_only { Err(Errno::PERM) } else { Ok(()) }
    }
}

impl Disk for Contents {
    fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        self.device.read_at(offset, data).map_err(errno)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        self.check_writable()?;
        self.device.write_at(offset, data).map_err(errno)
    }

    fn flush(&self) -> Result<(), Errno> {
        if self.read_only { Ok(()) } else { self.device.flush().map_err(errno) }
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Errno> {
        self.check_writable()?;
        match self.device.discard(offset, len) {
            // A hint, so devices without support ignore it.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            done => done.map_err(errno),
        }
    }

    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), Errno> {
        self.check_writable()?;
        self.device.zero_range(offset, len).map_err(errno)
    }
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
