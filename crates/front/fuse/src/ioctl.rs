//! Dispatch of ioctl(2) requests. Unknown commands return `ENOTTY`, which programs interpret as "not supported by this
//! file system".
//!
//! The kernel forwards requests without pointers. It checks no permissions: each function here makes the checks of its
//! kernel counterpart.

mod flags;
mod trim;

use linux::abi::{InHeader, IoctlIn};
use linux::{Errno, PageCache, Reply, ioctl};
use vfs::Ino;

use crate::Adapter;

/// Size of a label buffer including the final NUL (`FSLABEL_MAX`).
pub(crate) const LABEL_ROOM: usize = 256;

/// `FS_IOC_GETFSLABEL`.
const GETFSLABEL: u32 = ioctl::read(0x94, 49, LABEL_ROOM);
/// `FS_IOC_SETFSLABEL`.
const SETFSLABEL: u32 = ioctl::write(0x94, 50, LABEL_ROOM);
/// `XFS_IOC_GOINGDOWN`, `EXT4_IOC_SHUTDOWN`.
pub(crate) const GOINGDOWN: u32 = ioctl::read(b'X', 125, size_of::<u32>());

pub(crate) use flags::may_forbid;

/// A request: its caller, inode and input.
#[derive(Clone, Copy)]
pub(crate) struct Ioctl<'a> {
    pub(crate) header: &'a InHeader,
    pub(crate) ino: Ino,
    pub(crate) args: &'a IoctlIn,
    pub(crate) data: &'a [u8],
}

impl Adapter<'_> {
    /// Answers IOCTL. `cache` gives access to the kernel's page cache if the request is a late one.
    pub(crate) fn ioctl(
        &self,
        request: &Ioctl<'_>,
        reply: &mut Reply<'_>,
        cache: Option<&PageCache<'_>>,
    ) -> Result<(), Errno> {
        // One line for each command, with a separate function.
        match request.args.cmd {
            flags::GETFLAGS => self.getflags(request, reply),
            flags::SETFLAGS => self.setflags(request, reply, cache),
            flags::FSGETXATTR => self.fsgetxattr(request, reply),
            flags::FSSETXATTR => self.fssetxattr(request, reply, cache),
            trim::FITRIM => self.trim(request, reply),
            GETFSLABEL => self.get_label(request, reply),
            SETFSLABEL => self.set_label(request).and_then(|()| ioctl::done(reply)),
            GOINGDOWN => self.shut_down(request, cache).and_then(|()| ioctl::done(reply)),
            _ => Err(Errno::NOTTY),
        }
    }
}

/// Returns whether a command may change something: commands without input do not.
pub(crate) fn may_change(args: &IoctlIn) -> bool {
    ioctl::takes_input(args.cmd)
}
