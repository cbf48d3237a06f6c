//! Requests by ioctl(2): which function does which. Whatever is not known is answered `ENOTTY`, which is what
//! programs take for "this file system has no such thing".
//!
//! The kernel lets through what can be asked without following pointers. It checks no rights: each function
//! here checks what its kernel counterpart would.

use fuse_device::abi::{InHeader, IoctlIn};
use fuse_device::{Errno, Reply, ioctl};
use vfs::Ino;

use crate::Adapter;

/// A request: who asks, about which inode, and what goes in.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "each command uses a part of it")]
pub(crate) struct Ioctl<'a> {
    pub(crate) header: &'a InHeader,
    pub(crate) ino: Ino,
    pub(crate) args: &'a IoctlIn,
    pub(crate) data: &'a [u8],
}

impl Adapter<'_> {
    /// Answers IOCTL.
    pub(crate) fn ioctl(&self, request: &Ioctl<'_>, _reply: &mut Reply<'_>) -> Result<(), Errno> {
        // One line for each command, and a function of its own that does it.
        match request.args.cmd {
            _ => Err(Errno::NOTTY),
        }
    }
}

/// Whether a command may change something: nothing does to which nothing is said.
pub(crate) fn may_change(args: &IoctlIn) -> bool {
    ioctl::takes_input(args.cmd)
}
