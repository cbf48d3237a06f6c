//! Linux software RAID (md): superblocks of version 0.90 and 1.x ([`superblock`]), the order of data ([`layout`]), and
//! arrays of levels linear, 0, 1, 4, 5 and 6 ([`mod@array`]).
//!
//! The formats follow md(4), the kernel's `Documentation/admin-guide/md.rst`, the Linux RAID wiki's page "RAID superblock formats",
//! and observed arrays.

pub mod array;
pub mod layout;
pub mod superblock;

pub use array::{OpenArray, arrays, find_superblock};
