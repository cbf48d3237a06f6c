//! Tests of heap allocations.
//!
//! A separate program, because it has an allocator that counts the allocations of each thread.

extern crate diskwright_ext4 as ext4;
#[macro_use]
extern crate testkit;

mod claims;
#[path = "../common/mod.rs"]
mod common;
mod contents;
#[path = "../files/mod.rs"]
mod files;
#[path = "../names/common.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod images;
mod names;
mod sparse;
