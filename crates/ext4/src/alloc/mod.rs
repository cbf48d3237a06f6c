//! Free space and free inodes.

mod bitmap;
