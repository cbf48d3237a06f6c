//! The program `diskwright-bench`. It runs the workloads of the mailing-list threads about directories, parent pointers
//! and orphans ([`jobs`]) in turn on any contestants ([`mod@run`]) in several [`environments`], and reports them
//! ([`mod@report`]). On Linux, `measurements` compares Diskwright with other programs.
//!
//! It is a library only for its tests, and for [`command`], from which man pages and completions are generated.
#![forbid(unsafe_code)]

#[cfg(all(test, target_os = "linux"))]
#[macro_use]
extern crate testkit;

mod allocations;
mod command;
pub mod contestant;
mod cost;
pub mod environments;
mod error;
pub mod jobs;
mod machine;
#[cfg(target_os = "linux")]
mod measurements;
mod program;
pub mod report;
pub mod run;
pub mod target;

pub use cost::{Cost, Stopwatch};
pub use error::{Error, Result};
pub use machine::Machine;
pub use program::{command, main};
