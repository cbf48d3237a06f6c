//! Times of files as those of HTTP.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use vfs::Timestamp;

/// The last second of the year 9999. HTTP dates cannot express later times, nor times before 1970.
const SEC_MAX: i64 = 253_402_300_799;

/// Returns a time of a file, or the nearest one that HTTP can express.
pub(crate) fn of(time: Timestamp) -> SystemTime {
    if !(0..=SEC_MAX).contains(&time.sec) {
        return UNIX_EPOCH + Duration::from_secs(time.sec.clamp(0, SEC_MAX) as u64);
    }
    UNIX_EPOCH + Duration::new(time.sec as u64, time.nsec)
}

/// Parses an HTTP date.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let time = httpdate::parse_http_date(text.trim()).ok()?;
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp { sec: i64::try_from(since.as_secs()).ok()?, nsec: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_out_of_range_do_not_panic() {
        for sec in [i64::MIN, -1, 0, SEC_MAX, SEC_MAX + 1, i64::MAX] {
            let text = httpdate::fmt_http_date(of(Timestamp { sec, nsec: 999_999_999 }));
            assert!(parse(&text).is_some(), "{text}");
        }
        assert_eq!(parse("Mon, 12 Jan 1998 09:25:56 GMT").map(|time| time.sec), Some(884_597_156));
        assert_eq!(parse("yesterday"), None);
    }
}
