//! Mounts of a file system in memory, over `/dev/fuse` and over io_uring.

mod common;
mod process;
mod session;
