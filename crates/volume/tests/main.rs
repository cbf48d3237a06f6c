//! Volumes on a bucket in memory: what they hold, who may write, and what failures and ends at any request leave.

#[macro_use]
extern crate oracle;

mod bucket;
mod crash;
mod device;
mod faults;
mod fencing;
mod file_system;
mod snapshots;
