//! Usage of users, groups and projects, if the superblock says that it was counted.
//!
//! An operation notes the changes of inodes when it writes them ([`UsageChanges`]), and enters them into a ledger in
//! memory when it commits. Closing a checkpoint adds the ledger to the records of the quota files
//! ([`Quotas::flush_deferred`]). So the records on the device always match the inodes, and kernels need not count.
//!
//! Invariants:
//! - A block of records is added in a separate operation, before the first operation that uses an identifier in it
//!   (`provide`). So closing a checkpoint allocates nothing. Records without usage are valid.
//! - If an identifier in use has no valid record, or usage would be negative, the image was wrong before. The kind is
//!   given up: the checkpoint clears its flag in `sb_qflags`, and the kernel counts it at the next mount.
//! - An inode's block count includes its realtime blocks. Changes of maps note their part, so the section of each block
//!   is known without reading the map, except when a realtime file gets another owner.
//! - An operation fails if it exceeds a limit. Its changes enter the ledger under one lock with the check, and are
//!   removed if the operation fails later.
//! - The quota files are changed by `provide`, under the lock `growth`, and by the closing of a checkpoint. The lock is
//!   taken after inode locks and before the operation.

mod account;
mod administer;
mod change;
mod flush;
mod ledger;
mod limits;
mod load;
mod provide;
mod realtime;
mod recount;
mod statfs;

pub(crate) use account::{Account, UsageChanges, moves_realtime};
pub(crate) use ledger::Quotas;
