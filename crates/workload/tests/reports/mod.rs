//! The runner of comparisons and its reports, on contestants and workloads that are made up.

mod common;
mod headlines;
mod json;
mod page;
mod runner;
mod texts;
