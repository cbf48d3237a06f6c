//! Volumes on an in-memory bucket: contents, exclusive writing, and the state after failures and crashes at any
//! request.

mod bucket;
mod bulk;
mod crash;
mod device;
mod faults;
mod fencing;
mod file_system;
mod garbage;
mod lists;
mod model;
mod references;
mod simulation;
mod snapshots;
