//! The time of day, for what is stamped with it without a caller who names a time: deletions, commits, repairs.
//!
//! It is the host's. A host without a clock (wasm32-unknown-unknown) needs one from the program: see [`provide`].

use std::sync::OnceLock;

use crate::Timestamp;

/// Whether the host has clocks that can be asked. Asking one that is not there panics.
pub const IS_ON_HOST: bool = !cfg!(all(target_family = "wasm", target_os = "unknown"));

static PROVIDED: OnceLock<fn() -> Timestamp> = OnceLock::new();

/// Takes the time from `clock` from now on, in all of this process. False if a clock was provided before, which stays.
pub fn provide(clock: fn() -> Timestamp) -> bool {
    PROVIDED.set(clock).is_ok()
}

/// The time now, or `None` where nobody knows it: the host has no clock, or one that stands before 1970.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// 2001-09-09, when most of this was not written.
    const PAST: Timestamp = Timestamp { sec: 1_000_000_000, nsec: 5 };

    #[test]
    fn the_time_is_the_hosts_until_somebody_provides_another() {
        assert!(now().is_some_and(|now| now > PAST));
        assert!(provide(|| PAST));
        assert_eq!(now(), Some(PAST));
        assert!(!provide(Timestamp::default));
        assert_eq!(now(), Some(PAST));
    }
}
