//! The mounts of `process.rs` over io_uring, if the kernel has that.

#[path = "process.rs"]
mod process;
