//! Workloads for file systems, the reference model that real ones are compared with, the
//! explorer of what a crash leaves behind, trials that every format must pass, and walks over damaged
//! images.
#![forbid(unsafe_code)]

pub mod crash;
pub mod model;
pub mod operation;
pub mod tree;
pub mod trial;
pub mod walk;
