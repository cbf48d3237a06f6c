//! Workloads, the reference model, and reports.

extern crate diskwright_workload as workload;
#[macro_use]
extern crate testkit;

mod common;
mod jobs_find;
mod jobs_load;
mod jobs_names;
mod load;
mod model;
mod path;
mod reports;
mod times;
