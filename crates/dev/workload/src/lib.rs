//! Workloads for file systems: those of the mailing-list threads about directories, parent pointers and orphans
//! ([`jobs`]), executed in turn on any contestants ([`mod@run`]) and reported ([`mod@report`]). The feature `testing`
//! adds tools for tests of file systems: a reference model, a crash explorer, conformance tests for every format, and
//! traversals of damaged images.
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
