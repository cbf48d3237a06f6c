//! Mounts of a file system in memory, over `/dev/fuse` and over io_uring.

extern crate diskwright_fuse_device as fuse_device;
#[macro_use]
extern crate oracle;

mod block_device;
mod common;
mod process;
mod session;
