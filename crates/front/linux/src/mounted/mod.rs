//! Requests to the Linux kernel about file systems that it has mounted: where a device is mounted, the geometry of an XFS,
//! a new size, a new label.
//!
//! Opcodes and structures are those of `include/uapi/linux/fs.h`, of the kernel's documentation of ext4, and of xfsctl(3).
//! Elsewhere than on Linux the crate is empty.
//!
//! `unsafe` is allowed only for ioctls that rustix has no safe call for, each time with its reason.
#![deny(unsafe_code)]
#![cfg(target_os = "linux")]

mod mounts;
mod requests;

pub use mounts::{Loop, MountedDevice};
pub use requests::{XfsFlags, XfsGeometry, grow_xfs, label, resize_ext4, set_label, xfs_geometry};
