//! Free space and free inodes.

pub(crate) mod bitmap;
