//! The on-disk format: typed structures and pure functions without I/O.
//!
//! Raw structures are little-endian (big-endian in the journal). Their sizes are asserted at compile time, and their
//! fields have the names of the kernel's format documents. Each is parsed once into a validated type; code outside this
//! module uses validated types only.

pub mod address;
pub(crate) mod bitmap;
pub mod checksum;
pub mod dirent;
pub(crate) mod encryption;
pub mod extent;
pub mod features;
pub mod geometry;
pub mod group;
pub mod hash;
pub mod htree;
pub(crate) mod indirect;
pub mod inode;
pub mod jbd2;
pub mod journal_device;
pub mod mmp;
pub mod orphan;
pub mod quota;
pub mod slot;
pub mod superblock;
pub mod xattr;
