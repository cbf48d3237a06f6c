//! Time source for the timestamps that the file system sets itself: of deletion, commits and closing.

use std::time::Duration;

use vfs::Timestamp;

/// Time source.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    /// Fixed time instead of the machine's clock.
    pub(crate) fixed: Option<Timestamp>,
}

impl Clock {
    /// Returns the time since 1970; zero for earlier times.
    pub(crate) fn now(self) -> Duration {
        let time = self.fixed.or_else(vfs::clock::now).unwrap_or_default();
        Duration::new(u64::try_from(time.sec).unwrap_or(0), time.nsec)
    }

    /// Returns the same as a deletion time: seconds, but never 0, which means none.
    pub(crate) fn deletion(self) -> u32 {
        (self.now().as_secs() as u32).max(1)
    }
}
