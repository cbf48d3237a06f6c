//! Workloads for file systems, the reference model that real ones are compared with, and the
//! explorer of what a crash leaves behind.
#![forbid(unsafe_code)]

pub mod crash;
pub mod model;
pub mod operation;
pub mod tree;
