//! Programs of e2fsprogs, xfsprogs and others by their own names and options, on images.
//!
//! Builders call `mke2fs -d`, `e2fsck -pf` or `resize2fs`, and what they call is not theirs to change. Each
//! [`Program`] takes the arguments that its namesake's manual page has, does the same to an image by the engine of
//! Diskwright, and ends with the status that its namesake would end with. An option that is not supported is refused by
//! name: it is left out of account only where what was asked for holds all the same.
#![forbid(unsafe_code)]

mod android;
mod blkid;
mod completion;
mod debugfs;
mod dumpe2fs;
mod e2fsck;
mod failure;
mod fields;
mod foreign;
mod handover;
mod invoked;
mod lists;
mod making;
mod mending;
mod mke2fs;
mod mkfs_xfs;
#[cfg(target_os = "linux")]
mod mount;
#[cfg(target_os = "linux")]
mod online;
mod program;
mod resize2fs;
mod size;
mod supported;
mod target;
mod tune2fs;
mod words;
mod xfs_admin;
mod xfs_geometry;
mod xfs_growfs;
mod xfs_repair;

pub use program::Program;
