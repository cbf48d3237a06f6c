//! The commands that change an image: on images of mke2fs, of mkfs.xfs and of our own, judged by e2fsck,
//! xfs_repair and the kernel's mounts.

mod attributes;
mod common;
mod copy;
mod dump;
mod kill;
mod model;
mod names;
mod sessions;
