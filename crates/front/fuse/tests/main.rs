//! Tests of the mount's answers and effects, checked by the kernel's side of FUSE, e2fsck, xfs_repair and models.
//!
//! Separate programs are only those that select a global allocator, which applies to a whole program.

extern crate diskwright_fuse as fuse;
#[macro_use]
extern crate testkit;

mod attributes;
mod common;
mod contents;
mod in_place;
mod inheritance;
mod listings;
mod mounted;
mod mounted_contents;
mod mounted_seek;
mod names;
mod serving;
mod syncing;
mod xattrs;
