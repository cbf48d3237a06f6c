//! Interfaces of the Linux kernel. [`mounted`] sends requests about mounted file systems.
//!
//! [`ublk`] makes block devices.
//!
//! The rest is the FUSE protocol: layout of messages, mounting, and sessions that read requests and
//! send replies. File systems implement [`Handler`].
//!
//! The protocol is described by `include/uapi/linux/fuse.h` (BSD-2-Clause or GPL-2.0) and by the
//! kernel's `Documentation/filesystems/fuse*.rst`.
//!
//! `unsafe` is allowed only for system calls that no library wraps safely, each time with a reason.
#![deny(unsafe_code)]

#[cfg(test)]
#[macro_use]
extern crate testkit;

pub mod abi;
mod answer;
mod buffer;
mod complain;
mod device;
mod handler;
mod handshake;
mod init;
pub mod ioctl;
mod late;
mod mount;
pub mod mounted;
mod page_cache;
mod pipe;
mod reader;
mod reply;
mod request;
mod ring;
mod session;
#[cfg(test)]
#[path = "../tests/common/transport.rs"]
mod transport;
pub mod ublk;
mod unmounted;

pub use handler::{Handler, Kernel, Settings};
pub use init::InitFlags;
pub use mount::{MountOptions, Unmounter, WriteBack};
pub use page_cache::PageCache;
pub use reply::Reply;
pub use request::{Malformed, Operation, Request};
pub use rustix::io::Errno;
pub use session::{Session, SessionOptions};
pub(crate) use unmounted::Unmounted;
