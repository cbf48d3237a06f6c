//! Mounts of a file system in memory, over `/dev/fuse` and over io_uring.

extern crate diskwright_linux as linux;
#[macro_use]
extern crate testkit;

mod block_device;
mod common;
mod process;
mod session;
