//! Compares FUSE libraries: each serves the same file system in memory, and the same client uses it.

pub mod client;
pub mod memory;
pub mod serve;
