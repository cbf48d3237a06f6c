//! What the mount answers and does: judged by the kernel's side of FUSE, e2fsck, xfs_repair and models.
//!
//! Programs of their own are only those that choose an allocator, which counts for a whole program.

extern crate diskwright_fuse as fuse;
#[macro_use]
extern crate oracle;

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
