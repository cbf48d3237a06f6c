//! The current time for timestamps that no caller supplies: deletions, commits, repairs.
//!
//! It is read from the host. On a host without a clock (wasm32-unknown-unknown) the program supplies one with
//! [`provide`].

use std::sync::OnceLock;

use parking_lot::Mutex;

use crate::Timestamp;

const NSEC_PER_SEC: u32 = 1_000_000_000;

/// True if the host has a clock. Without one, `SystemTime::now` panics.
pub const IS_ON_HOST: bool = !cfg!(all(target_family = "wasm", target_os = "unknown"));

static PROVIDED: OnceLock<fn() -> Timestamp> = OnceLock::new();

/// Uses `clock` for the time from now on, in the whole process. Returns false, and changes nothing, if a clock was
/// provided before.
pub fn provide(clock: fn() -> Timestamp) -> bool {
    PROVIDED.set(clock).is_ok()
}

/// Returns the current time, or `None` if the host has no clock or its clock is before 1970.
pub fn now() -> Option<Timestamp> {
    match PROVIDED.get() {
        Some(clock) => Some(clock()),
        None => host(),
    }
}

fn host() -> Option<Timestamp> {
    if !IS_ON_HOST {
        return None;
    }
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(Timestamp { sec: i64::try_from(since.as_secs()).ok()?, nsec: since.subsec_nanos() })
}

/// A clock whose times ascend, so that clients see from the times of an inode whether it has changed.
#[derive(Default)]
pub struct AscendingClock {
    last: Mutex<Timestamp>,
}

impl AscendingClock {
    /// Returns the time of a change, which is later than that of the change before. If the host's clock was set back by
    /// a second or more, times follow it.
    pub fn next(&self) -> Timestamp {
        let mut last = self.last.lock();
        *last = after(*last, now().unwrap_or_default());
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

    /// 2001-09-09. Any current time is later.
    const PAST: Timestamp = Timestamp { sec: 1_000_000_000, nsec: 5 };

    #[test]
    fn the_time_is_the_hosts_until_somebody_provides_another() {
        assert!(now().is_some_and(|now| now > PAST));
        assert!(provide(|| PAST));
        assert_eq!(now(), Some(PAST));
        assert!(!provide(Timestamp::default));
        assert_eq!(now(), Some(PAST));
    }

    #[test]
    fn times_ascend() {
        let at = |sec, nsec| Timestamp { sec, nsec };
        assert_eq!(after(at(5, 7), at(5, 9)), at(5, 9));
        assert_eq!(after(at(5, 7), at(5, 7)), at(5, 8));
        assert_eq!(after(at(5, NSEC_PER_SEC - 1), at(5, 7)), at(6, 0));
        assert_eq!(after(at(500, 7), at(5, 9)), at(5, 9), "the clock was set");
        let clock = AscendingClock::default();
        let times: Vec<_> = (0..1000).map(|_| clock.next()).collect();
        assert!(times.is_sorted_by(|a, b| a < b));
    }
}
