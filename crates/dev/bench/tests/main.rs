//! The program `diskwright-bench`: workloads on the reference model, both formats and kernel file systems, reports, the
//! command line, and the scripts that measure with it.

#[macro_use]
extern crate testkit;

mod command;
mod common;
mod host;
mod jobs_find;
mod jobs_load;
mod jobs_names;
mod load;
mod memory;
mod page;
mod reports;
mod times;
