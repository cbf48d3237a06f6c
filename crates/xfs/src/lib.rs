//! XFS: the on-disk format, and making, reading and filling file systems of it.
#![forbid(unsafe_code)]

mod alloc;
mod attr;
mod bmap;
mod btree;
mod copy;
mod dir;
mod file;
pub mod format;
mod fs;
mod inherit;
mod inode;
pub mod inspect;
mod intents;
mod interface;
mod kind;
mod label;
mod log;
pub mod mkfs;
mod names;
mod op;
mod open;
mod project;
mod source;
#[cfg(test)]
mod stub;
mod superblocks;
mod unlinked;
mod volume;

pub use dir::LeafBuffering;
pub use dir::free::FreeIndexStrategy;
pub use fs::{CACHE_BYTES_DEFAULT, OpenOptions, Xfs};
pub use log::{
    LogEnd, LogItem, LogRecord, LogTransaction, Position as LogPosition, Recovered as RecoveredLog,
    Report as RecoverReport, log_contents, log_end, log_is_clean, recover as recover_log,
};
