//! The runner of comparisons and its reports, with invented contestants and workloads.

mod common;
mod headlines;
mod json;
mod page;
mod runner;
mod texts;
