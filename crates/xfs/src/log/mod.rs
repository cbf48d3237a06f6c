//! The log: where it ends, and whether what it holds is already in place.

mod end;

pub use end::{LogEnd, log_end, log_is_clean};
