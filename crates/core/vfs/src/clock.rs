//! The current time for timestamps that no caller supplies: deletions, commits, repairs.
//!
//! It is read from the host. On a host without a clock (wasm32-unknown-unknown) the program supplies one with
//! [`provide`].

use std::sync::OnceLock;

use crate::Timestamp;

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
}
