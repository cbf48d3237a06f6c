//! Free space and free inodes.
//!
//! An operation holds a group's lock from its first allocation in the group to its end. If it fails, the group's counts
//! are restored, and the transaction restores its bitmap. Descriptors and bitmap checksums are updated when a
//! checkpoint is closed.

pub(crate) mod bitmap;
mod blocks;
mod busy;
mod free;
pub(crate) mod groups;
pub(crate) mod guard;
mod inodes;
mod reserve;
pub(crate) mod reserved;
pub(crate) mod spread;
pub(crate) mod system;
mod trim;
