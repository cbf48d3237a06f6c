//! What the library promises to programs, judged by e2fsck, xfs_repair and the host's own file system.

#[macro_use]
extern crate oracle;

mod examples;
mod files;
mod host;
mod images;
mod model;
mod opening;
mod threads;
mod trees;
