//! The log: finding its end, recovery, and writing checkpoints to it.

mod area;
mod end;
mod items;
mod recover;
mod xfs_log;

pub use end::{LogEnd, log_end, log_is_clean};
pub use recover::Report;
pub(crate) use recover::{Position, Recovered, recover};
pub(crate) use xfs_log::XfsLog;
