//! Tests of the server with clients of its own and those of libnfs, on images in memory that e2fsck and xfs_repair judge.

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
