//! Tests of the server with a client of these tests, litmus, rclone, cadaver, curl and davfs2. The images are in memory,
//! and e2fsck and xfs_repair judge them.

#[macro_use]
extern crate testkit;

mod access;
mod common;
mod contents;
mod copies;
mod hostile;
mod locks;
mod names;
mod page;
mod programs;
mod properties;
