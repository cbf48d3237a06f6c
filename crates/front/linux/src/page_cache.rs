//! The kernel's cache of a mount's files, and requests to write it back.

use std::ops::Range;

use crate::Errno;
use crate::device::Device;
use crate::mount::OwnMount;

/// The kernel's cache of files.
#[derive(Debug)]
pub struct PageCache<'a> {
    device: &'a Device,
    mount: &'a OwnMount,
}

impl<'a> PageCache<'a> {
    pub(crate) fn new(device: &'a Device, mount: &'a OwnMount) -> Self {
        Self { device, mount }
    }

    /// Writes back all cached data and timestamps of the mount, and keeps the cache. The kernel
    /// sends requests for it; they are complete when this returns.
    ///
    /// # Errors
    /// If the mount is no longer at its mount point, or a write fails.
    pub fn write_back_all(&self) -> Result<(), Errno> {
        let written = self.mount.write_back();
        written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// Writes back and drops the cached pages that intersect a byte range of a node. An end of
    /// `u64::MAX` means the end of the file. The kernel sends WRITE requests; they are complete
    /// when this returns. A node without cached data causes no error.
    ///
    /// # Errors
    /// If the mount is gone, or the kernel does not support this notification.
    pub fn write_back(&self, nodeid: u64, range: Range<u64>) -> Result<(), Errno> {
        match self.device.invalidate(nodeid, range) {
            Err(Errno::NOENT) => Ok(()),
            result => result,
        }
    }
}
