//! The XFS on-disk format; creating, reading and changing XFS file systems.
#![forbid(unsafe_code)]

#[cfg(test)]
#[macro_use]
extern crate testkit;

#[cfg(test)]
extern crate self as xfs;

mod alloc;
mod btree;
pub mod check;
mod deferred_create;
pub mod deleted;
mod dir;
mod file;
pub mod format;
mod fs;
mod inode;
pub mod inspect;
mod intents;
mod interface;
mod kind;
mod log;
mod map;
mod metadir;
pub mod mkfs;
mod names;
mod obfuscate;
mod op;
mod open;
mod orphan;
mod quota;
#[cfg(test)]
#[path = "../tests/repair/quota_files.rs"]
mod quota_files;
pub mod repair;
pub mod resize;
#[cfg(test)]
mod stub;
mod survey;
pub mod tune;
mod volume;
mod xattr;

pub use dir::InsertBuffering;
#[cfg(feature = "free-index-strategies")]
pub use dir::free::FreeIndexStrategy;
pub use fs::{CACHE_BYTES_DEFAULT, OpenOptions, XfsCore};
pub use log::{
    LogEnd, LogItem, LogRecord, LogTransaction, Position as LogPosition, Recovered as RecoveredLog,
    Report as RecoverReport, log_contents, log_end, log_is_clean, recover as recover_log,
};
pub use open::superblock_copy::{has_superblock_copy, has_superblock_copy_anywhere};
pub use operations::deferred_create::DeferPolicy;

/// An open XFS file system. Methods that only this format has are those of [`XfsCore`].
pub type Xfs = operations::Mounted<XfsCore>;
