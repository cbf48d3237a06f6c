//! Programs of e2fsprogs, xfsprogs and others with their original names and options, for images.
//!
//! Build tools call `mke2fs -d`, `e2fsck -pf` or `resize2fs` and cannot easily be changed. Each [`Program`] accepts the
//! documented arguments of the original, performs the operation with Diskwright's engine, and returns the original's
//! exit status. Unsupported options are rejected by name. An option is ignored only if the result satisfies it anyway.
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
pub mod hints;
mod invoked;
mod journal_device;
mod lists;
mod making;
mod mke2fs;
mod mkfs_xfs;
#[cfg(target_os = "linux")]
mod mount;
#[cfg(target_os = "linux")]
mod online;
mod program;
mod repairing;
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
