//! ext2, ext3 and ext4: the on-disk format, and creating, reading, changing and checking file systems of it.
#![forbid(unsafe_code)]

#[cfg(test)]
#[macro_use]
extern crate testkit;

mod alloc;
mod blocks;
pub mod check;
pub mod debug;
mod deferred_create;
pub mod deleted;
mod dir;
pub mod e2undo;
mod fast_commit;
mod file;
pub mod format;
mod fs;
pub mod fscrypt;
mod inode;
mod inspect;
mod interface;
mod kind;
pub mod log;
mod map;
pub mod mkfs;
pub mod mmp;
mod names;
mod obfuscate;
mod op;
mod open;
mod orphan;
mod params;
mod quota;
pub mod repair;
pub mod resize;
mod survey;
pub mod tune;
#[cfg(feature = "verity")]
mod verity;
mod volume;
mod xattr;

pub use fs::{CACHE_BYTES_DEFAULT, Ext4Core, OpenOptions};
pub use open::superblock_copy::{SuperblockPlace, has_superblock_copy};
pub use operations::deferred_create::DeferPolicy;
pub use orphan::{OrphanPolicy, OrphanReport};

/// An open ext2, ext3 or ext4 file system. Methods that only this format has are those of [`Ext4Core`].
pub type Ext4 = operations::Mounted<Ext4Core>;
