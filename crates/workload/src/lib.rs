//! Workloads for file systems: those that the threads about directories, parent pointers and orphans
//! were argued with ([`jobs`]), run in turn on any contestants ([`mod@run`]) and reported
//! ([`mod@report`]); and, with the feature `testing`, what file systems are tested with: a reference model,
//! an explorer of what a crash leaves behind, trials that every format must pass, and walks over damaged
//! images.
#![forbid(unsafe_code)]

pub mod allocations;
pub mod contestant;
mod cost;
#[cfg(feature = "testing")]
pub mod crash;
mod error;
pub mod jobs;
mod machine;
#[cfg(feature = "testing")]
pub mod model;
#[cfg(feature = "testing")]
pub mod operation;
pub mod report;
pub mod run;
pub mod target;
#[cfg(feature = "testing")]
pub mod tree;
#[cfg(feature = "testing")]
pub mod trial;
#[cfg(feature = "testing")]
pub mod walk;

pub use cost::{Cost, Stopwatch};
pub use error::{Error, Result};
pub use machine::Machine;
