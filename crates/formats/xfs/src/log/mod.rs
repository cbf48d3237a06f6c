//! The log: finding its end, recovering, and writing checkpoints.

mod all_records;
mod area;
mod bounds;
mod cluster;
mod contents;
mod empty;
mod end;
mod items;
mod owner;
mod read;
mod recover;
mod replay;
mod shorten;
mod stale;
#[cfg(test)]
mod tests;
mod xfs_log;

pub(crate) use all_records::each_old_transaction;
pub use contents::{LogItem, LogRecord, LogTransaction, log_contents};
pub(crate) use empty::{write_clean, write_first};
pub use end::{LogEnd, log_end, log_is_clean};
pub(crate) use end::{head_byte, log_range};
pub(crate) use owner::uuid_of_log;
pub use recover::{Position, Recovered, Report, recover};
pub(crate) use recover::{has_torn_records, recover_before_damage};
pub(crate) use replay::stated_lsn;
pub(crate) use xfs_log::XfsLog;
