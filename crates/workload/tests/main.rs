//! Workloads, the reference model, and reports.
//!
//! Programs of their own are only those that choose an allocator, which counts for a whole program.

mod common;
mod jobs_load;
mod jobs_names;
mod load;
mod model;
mod path;
mod reports;
