//! Workloads for file systems, the reference model that real ones are compared with, the
//! explorer of what a crash leaves behind, and trials that every format must pass.
#![forbid(unsafe_code)]

pub mod crash;
pub mod model;
pub mod operation;
pub mod tree;
pub mod trial;
