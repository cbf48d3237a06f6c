//! Tests of the library against e2fsck, xfs_repair and the host's file system.

#[macro_use]
extern crate testkit;

#[cfg(feature = "check")]
mod disk_map;
mod examples;
mod files;
mod host;
mod images;
mod model;
mod opening;
mod threads;
mod trees;
