//! Workloads for file systems, and the reference model that real ones are compared with.
#![forbid(unsafe_code)]

pub mod model;
