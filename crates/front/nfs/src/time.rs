//! Times of changes.

use parking_lot::Mutex;
use vfs::Timestamp;

const NSEC_PER_SEC: u32 = 1_000_000_000;

/// A clock whose times ascend, so that clients see from the times of an inode whether it has changed.
#[derive(Default)]
pub(crate) struct ChangeClock {
    last: Mutex<Timestamp>,
}

impl ChangeClock {
    /// Returns the time of a change, which is later than that of the change before. If the host's clock was set back by
    /// a second or more, times follow it.
    pub(crate) fn next(&self) -> Timestamp {
        let mut last = self.last.lock();
        *last = after(*last, vfs::clock::now().unwrap_or_default());
        *last
    }
}

fn after(last: Timestamp, now: Timestamp) -> Timestamp {
    if now > last || last.sec.saturating_sub(now.sec) > 1 {
        return now;
    }
    match last.nsec + 1 {
        NSEC_PER_SEC => Timestamp { sec: last.sec + 1, nsec: 0 },
        nsec => Timestamp { nsec, ..last },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_ascend() {
        let at = |sec, nsec| Timestamp { sec, nsec };
        assert_eq!(after(at(5, 7), at(5, 9)), at(5, 9));
        assert_eq!(after(at(5, 7), at(5, 7)), at(5, 8));
        assert_eq!(after(at(5, NSEC_PER_SEC - 1), at(5, 7)), at(6, 0));
        assert_eq!(after(at(500, 7), at(5, 9)), at(5, 9), "the clock was set");
        let clock = ChangeClock::default();
        let times: Vec<_> = (0..1000).map(|_| clock.next()).collect();
        assert!(times.is_sorted_by(|a, b| a < b));
    }
}
