//! Tests of the library against e2fsck, xfs_repair and the host's file system.

#[macro_use]
extern crate testkit;

#[cfg(feature = "build")]
mod block_copy;
#[cfg(feature = "build")]
mod building;
#[cfg(all(feature = "build", target_os = "linux"))]
mod clones;
#[cfg(feature = "build")]
mod codes;
#[cfg(feature = "check")]
mod disk_map;
#[cfg(feature = "build")]
mod editing;
mod examples;
mod files;
mod host;
mod images;
#[cfg(feature = "build")]
mod listing;
mod model;
#[cfg(all(feature = "mount", target_os = "linux"))]
mod mounting;
mod opening;
mod threads;
mod trees;
