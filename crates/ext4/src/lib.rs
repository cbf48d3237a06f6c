//! ext2, ext3 and ext4: the on-disk format, and making, reading and filling file systems of it.
#![forbid(unsafe_code)]

mod alloc;
mod block_map;
mod clock;
mod copy;
mod create;
mod dir;
mod extent;
mod file;
pub mod format;
mod fs;
mod indirect;
mod inode;
pub mod inspect;
mod interface;
pub mod journal;
mod kind;
mod label;
mod link;
pub mod mkfs;
mod op;
mod open;
mod orphan;
mod project;
mod quota;
mod read;
mod rename;
mod unlink;
mod volume;
mod xattr;

pub use fs::{CACHE_BYTES_DEFAULT, Ext4, OpenOptions};
pub use orphan::{OrphanPolicy, OrphanReport};
