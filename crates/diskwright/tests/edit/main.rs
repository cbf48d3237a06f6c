//! The commands that change an image: on images of mke2fs and of our own, judged by e2fsck and by
//! the kernel's mount.

mod attributes;
mod common;
mod copy;
mod dump;
mod kill;
mod model;
mod names;
mod sessions;
