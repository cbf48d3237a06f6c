//! The time that the file system writes by itself: of deletions, of commits, of its closing.

use std::time::Duration;

use vfs::Timestamp;

/// Where that time comes from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    /// Always this time, instead of the machine's.
    pub(crate) fixed: Option<Timestamp>,
}

impl Clock {
    /// The time since 1970; none before that.
    pub(crate) fn now(self) -> Duration {
        let time = self.fixed.or_else(vfs::clock::now).unwrap_or_default();
        Duration::new(u64::try_from(time.sec).unwrap_or(0), time.nsec)
    }

    /// The same, as a slot keeps times of deletion: seconds, and never 0, which means none.
    pub(crate) fn deletion(self) -> u32 {
        (self.now().as_secs() as u32).max(1)
    }
}
