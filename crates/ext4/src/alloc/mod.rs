//! Free space and free inodes.
//!
//! Each group has a lock, held by an operation from its first allocation in the group to its end;
//! the group's counts are put back if the operation fails, as its bitmap is by the transaction.
//! Descriptors and the checksums of bitmaps are brought up to date when a checkpoint is closed.

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
