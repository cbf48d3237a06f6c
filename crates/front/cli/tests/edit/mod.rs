//! Commands that change an image: on images of mke2fs, of mkfs.xfs and of our own, checked by
//! e2fsck, xfs_repair and kernel mounts.

/// Requires the programs that create and check the images of [`common::on_each_image`].
macro_rules! require_images {
    () => {
        testkit::require!(
            Tool("mke2fs"),
            Tool("e2fsck"),
            Tool("mkfs.xfs"),
            Tool("xfs_repair"),
            Mount("ext4"),
            Mount("xfs")
        )
    };
}

mod attributes;
pub(crate) mod common;
mod copy;
mod deep;
mod dump;
mod encrypted;
mod flags;
mod folding;
mod fscrypt;
mod hostile;
mod kill;
mod names;
mod sessions;
mod tamper;
mod torn;
