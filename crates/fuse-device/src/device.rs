//! The descriptor that requests are read from and answers are written to.

use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::ioctl;
use zerocopy::IntoBytes;

use crate::abi::{self, NotifyInvalInodeOut, OutHeader};

/// Where the kernel's side is opened.
pub(crate) const PATH: &str = "/dev/fuse";

/// `FUSE_DEV_IOC_CLONE`: ties a descriptor of the device to the mount of another one.
const IOC_CLONE: ioctl::Opcode = ioctl::opcode::read::<u32>(229, 0);

/// An open `/dev/fuse` that belongs to a mount. When the last one is closed, the kernel gives the mount
/// up: everything asked of it fails with `ENOTCONN`.
#[derive(Debug)]
pub(crate) struct Device {
    fd: OwnedFd,
}

impl Device {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Another descriptor of the same mount, so that threads do not share what the kernel keeps for one.
    /// Where that is not possible, they do.
    pub(crate) fn for_another_thread(&self) -> io::Result<Self> {
        self.cloned().or_else(|_| self.fd.try_clone()).map(Self::new)
    }

    /// Another descriptor of the same mount, whose reads do not wait ([`Self::receive_now`]).
    ///
    /// # Errors
    /// If there is no way to have one: shared with others, it would be theirs, too, that do not wait.
    pub(crate) fn without_waiting(&self) -> io::Result<Self> {
        let fd = self.cloned()?;
        rustix::fs::fcntl_setfl(&fd, OFlags::RDWR | OFlags::NONBLOCK)?;
        Ok(Self::new(fd))
    }

    fn cloned(&self) -> io::Result<OwnedFd> {
        let fd = OwnedFd::from(OpenOptions::new().read(true).write(true).open(PATH)?);
        let own = self.fd.as_raw_fd() as u32;
        // SAFETY: the request takes a pointer to a descriptor's number as `u32`, which it only reads.
        // rustix has no safe call for it.
        #[allow(unsafe_code)]
        unsafe {
            ioctl::ioctl(&fd, ioctl::Setter::<IOC_CLONE, u32>::new(own))?;
        }
        Ok(fd)
    }

    /// Waits for the next request and returns its length; `None` if the mount is gone. `buffer` must
    /// have room for any request, or the kernel refuses.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&self.fd, &mut *buffer) {
                Ok(0) => return Ok(None),
                Ok(len) => return Ok(Some(len)),
                // The request was taken back, or a signal came.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Err(error) if is_gone(error) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads a request if there is one, from a descriptor of [`Self::without_waiting`].
    pub(crate) fn receive_now(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::read(&self.fd, buffer) {
            Ok(len) => Ok((len > 0).then_some(len)),
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends an answer. That nobody waits for it any more is no error.
    pub(crate) fn send(&self, header: &OutHeader, payload: &[u8]) -> io::Result<()> {
        match self.try_send(header, payload) {
            // The kernel does not take the answer: the program that waits for it must not wait for ever.
            Err(Errno::INVAL) => {
                let error = -Errno::IO.raw_os_error();
                let len = size_of::<OutHeader>() as u32;
                let _ = self.try_send(&OutHeader { len, error, unique: header.unique }, &[]);
                Ok(())
            }
            // The request was interrupted.
            Err(Errno::NOENT) => Ok(()),
            // The next `receive` says the same.
            Err(error) if is_gone(error) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(()) => Ok(()),
        }
    }

    /// Has the kernel write back and forget what it caches of a node's bytes (`FUSE_NOTIFY_INVAL_INODE`).
    pub(crate) fn invalidate(&self, nodeid: u64, range: Range<u64>) -> Result<(), Errno> {
        let off = i64::try_from(range.start).map_err(|_| Errno::INVAL)?;
        // 0 stands for all that follows.
        let len = i64::try_from(range.end).map_or(0, |end| end.saturating_sub(off).max(0));
        self.notify_invalid(nodeid, off, len)
    }

    /// Has the kernel forget what it knows of a node, and not its bytes.
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

/// Whether the error says that the mount is gone.
fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::NODEV | Errno::CONNABORTED)
}
