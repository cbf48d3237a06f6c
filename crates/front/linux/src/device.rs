//! The FUSE device: requests are read from it, replies are written to it.

use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::ioctl;
use zerocopy::IntoBytes;

use crate::abi::{self, NotifyInvalInodeOut, OutHeader};

/// Path of the FUSE device.
pub(crate) const PATH: &str = "/dev/fuse";

/// `FUSE_DEV_IOC_CLONE`: attaches a descriptor of the device to the mount of another descriptor.
const IOC_CLONE: ioctl::Opcode = ioctl::opcode::read::<u32>(229, 0);

/// An open `/dev/fuse` that belongs to a mount. When the last descriptor is closed, the kernel
/// aborts the connection, and all requests fail with `ENOTCONN`.
#[derive(Debug)]
pub(crate) struct Device {
    fd: OwnedFd,
}

impl Device {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Returns another descriptor of the same mount. A cloned descriptor has its own state in the
    /// kernel, which avoids contention between threads. If cloning is unsupported, the descriptor
    /// is duplicated.
    pub(crate) fn for_another_thread(&self) -> io::Result<Self> {
        self.cloned().or_else(|_| self.fd.try_clone()).map(Self::new)
    }

    /// Returns another descriptor of the same mount with non-blocking reads
    /// ([`Self::receive_now`]).
    ///
    /// # Errors
    /// If the descriptor cannot be cloned. A duplicate is no substitute: it would share the
    /// non-blocking flag with the others.
    pub(crate) fn without_waiting(&self) -> io::Result<Self> {
        let fd = self.cloned()?;
        rustix::fs::fcntl_setfl(&fd, OFlags::RDWR | OFlags::NONBLOCK)?;
        Ok(Self::new(fd))
    }

    fn cloned(&self) -> io::Result<OwnedFd> {
        let fd = OwnedFd::from(OpenOptions::new().read(true).write(true).open(PATH)?);
        let own = self.fd.as_raw_fd() as u32;
        // SAFETY: the ioctl takes a pointer to a `u32` with a descriptor number and only reads it.
        // rustix has no safe call for it.
        #[allow(unsafe_code)]
        unsafe {
            ioctl::ioctl(&fd, ioctl::Setter::<IOC_CLONE, u32>::new(own))?;
        }
        Ok(fd)
    }

    /// Waits for the next request and returns its length, or `None` if the mount is gone. The
    /// kernel rejects a `buffer` that is too small for the largest request.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&self.fd, &mut *buffer) {
                Ok(0) => return Ok(None),
                Ok(len) => return Ok(Some(len)),
                // The request was cancelled, or a signal arrived.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Err(error) if is_gone(error) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads a request if one is pending. The descriptor must come from [`Self::without_waiting`].
    pub(crate) fn receive_now(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::read(&self.fd, buffer) {
            Ok(len) => Ok((len > 0).then_some(len)),
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a reply. Succeeds if the request was cancelled meanwhile.
    pub(crate) fn send(&self, header: &OutHeader, payload: &[u8]) -> io::Result<()> {
        match self.try_send(header, payload) {
            // The kernel rejects the reply. Fail the request instead, or its caller would wait
            // forever.
            Err(Errno::INVAL) => {
                let error = -Errno::IO.raw_os_error();
                let len = size_of::<OutHeader>() as u32;
                let _ = self.try_send(&OutHeader { len, error, unique: header.unique }, &[]);
                Ok(())
            }
            // The request was interrupted.
            Err(Errno::NOENT) => Ok(()),
            // The next `receive` reports the same.
            Err(error) if is_gone(error) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(()) => Ok(()),
        }
    }

    /// Requests that the kernel write back and drop cached data of a node
    /// (`FUSE_NOTIFY_INVAL_INODE`).
    pub(crate) fn invalidate(&self, nodeid: u64, range: Range<u64>) -> Result<(), Errno> {
        let off = i64::try_from(range.start).map_err(|_| Errno::INVAL)?;
        // A length of 0 means everything from `off`.
        let len = i64::try_from(range.end).map_or(0, |end| end.saturating_sub(off).max(0));
        self.notify_invalid(nodeid, off, len)
    }

    /// Invalidates the kernel's cached attributes of a node, but not its data.
    pub(crate) fn invalidate_attributes(&self, nodeid: u64) -> Result<(), Errno> {
        self.notify_invalid(nodeid, -1, 0)
    }

    fn notify_invalid(&self, nodeid: u64, off: i64, len: i64) -> Result<(), Errno> {
        let what = NotifyInvalInodeOut { ino: nodeid, off, len };
        let header = OutHeader {
            len: (size_of::<OutHeader>() + size_of::<NotifyInvalInodeOut>()) as u32,
            error: abi::NOTIFY_INVAL_INODE,
            unique: 0,
        };
        self.try_send(&header, what.as_bytes())
    }

    fn try_send(&self, header: &OutHeader, payload: &[u8]) -> Result<(), Errno> {
        let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(payload)];
        rustix::io::retry_on_intr(|| rustix::io::writev(&self.fd, &parts)).map(|_| ())
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns whether the error means that the mount is gone.
fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::NODEV | Errno::CONNABORTED)
}
