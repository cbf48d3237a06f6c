//! Guarantees of the library and the program, checked by e2fsck, xfs_repair, the kernel, and real
//! programs.

#[macro_use]
extern crate testkit;

mod advice;
#[cfg(feature = "anywhere")]
mod anywhere;
mod build;
mod check;
mod cli;
mod convert;
mod cookbook;
mod copy;
mod damaged;
mod deleted;
mod devices;
mod disk;
mod dropin;
mod edit;
mod extract;
mod images;
mod journal_device;
mod layers;
mod log_device;
mod map;
mod mount;
mod mount_cli;
mod mount_crash;
mod mount_edges;
mod mount_posix;
mod mount_programs;
mod pages;
mod place;
mod program;
mod quota;
mod realtime_device;
mod repair;
mod resize;
mod serve;
mod stacks;
mod workload;
mod xfs_images;
mod zoned;
