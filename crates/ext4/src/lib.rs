//! ext2, ext3 and ext4: the on-disk format, and making and changing file systems of it.
#![forbid(unsafe_code)]

mod alloc;
pub mod format;
mod read;
