//! Numbers of processors.

use std::fs;
use std::io;

/// Returns the maximum number of processors of the system. The kernel has that many queues,
/// numbered without gaps.
pub(super) fn possible() -> io::Result<usize> {
    count_in("/sys/devices/system/cpu/possible")
}

/// Returns the number of online processors.
pub(super) fn online() -> io::Result<usize> {
    count_in("/sys/devices/system/cpu/online")
}

fn count_in(path: &str) -> io::Result<usize> {
    let list = fs::read_to_string(path)?;
    count(list.trim_end()).ok_or_else(|| io::Error::other(format!("{path}: {list}")))
}

/// Counts the processors in a list such as `0-3,8`. Returns `None` for an invalid or empty list.
fn count(list: &str) -> Option<usize> {
    list.split(',').try_fold(0_usize, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::{count, online, possible};

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-3"), Some(4));
        assert_eq!(count("0-3,7,9-11"), Some(8));
        for wrong in ["", "a", "3-2", "0-", "0,,2", "0-18446744073709551615"] {
            assert_eq!(count(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn this_system_has_processors() {
        let (online, possible) = (online().unwrap(), possible().unwrap());
        assert!(1 <= online && online <= possible, "{online} of {possible}");
    }
}
