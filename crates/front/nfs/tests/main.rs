//! Tests of the server with a client of these tests, libnfs and the kernel. The images are in memory, and e2fsck and
//! xfs_repair judge them.

#[macro_use]
extern crate testkit;

mod attributes;
mod common;
mod contents;
mod creating;
mod hostile;
mod kernel;
mod libnfs;
mod listings;
mod names;
mod permissions;
mod restarts;
mod suites;
