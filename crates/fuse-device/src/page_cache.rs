//! What the kernel holds of a mount's files, and how it is asked to let go of it.

use std::ops::Range;

use crate::Errno;
use crate::device::Device;
use crate::mount::Mount;

/// What the kernel holds of files.
#[derive(Debug)]
pub struct PageCache<'a> {
    device: &'a Device,
    mount: &'a Mount,
}

impl<'a> PageCache<'a> {
    pub(crate) fn new(device: &'a Device, mount: &'a Mount) -> Self {
        Self { device, mount }
    }

    /// Has the kernel write back all that it holds of the whole mount, times too, and keep it. It comes as
    /// requests, which are done when this returns.
    ///
    /// # Errors
    /// If the mount is not where it was made any more, or something cannot be written.
    pub fn write_back_all(&self) -> Result<(), Errno> {
        let written = self.mount.write_back();
        written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// Has the kernel write back what it holds of a range of a node's bytes, and forget it: pages that
    /// the range touches, up to `u64::MAX` for all from its start on. They come as WRITEs, which are done
    /// when this returns. Files of which the kernel holds nothing are none of its business.
    ///
    /// # Errors
    /// If the mount is gone, or the kernel does not know this notification.
    pub fn write_back(&self, nodeid: u64, range: Range<u64>) -> Result<(), Errno> {
        match self.device.invalidate(nodeid, range) {
            Err(Errno::NOENT) => Ok(()),
            result => result,
        }
    }
}
