//! The mounts of `session.rs` over io_uring, if the kernel has that.

#[path = "session.rs"]
mod session;
