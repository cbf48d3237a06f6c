//! Access to single structures, for debuggers: inodes in use or free, names without their link counts, maps entry by
//! entry, and bits of bitmaps.
//!
//! Changes of inodes and names are operations of an open file system. They maintain checksums and quotas only: the
//! caller must keep the image consistent. [`Bitmaps`] works on the device of a closed file system.

mod bitmaps;
mod directory;
mod inodes;
mod maps;
mod names;

pub use bitmaps::Bitmaps;
pub use directory::{DirectoryPart, IndexNode};
pub use inodes::write_inode_slot;
pub use maps::MapEntry;
