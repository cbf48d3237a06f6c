//! Text formats of names, sizes, times and modes.
//!
//! ```
//! use diskwright::text::{escaped, parse_size, size};
//!
//! assert_eq!(parse_size("64M"), Ok(64 << 20));
//! assert_eq!(size(64 << 20), "64.0 MiB");
//! assert_eq!(escaped(b"a\nb").to_string(), r"a\nb");
//! ```

pub use disk::address::safe;
pub use vfs::text::{escaped, hex, mode, size, type_word};

#[cfg(feature = "build")]
use vfs::Timestamp;

/// Parses a number of bytes: digits with an optional unit K, M, G, T, P, E (powers of 1024, also spelled `k`, `KiB`).
///
/// # Errors
/// A message with the expected syntax.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| {
        format!(
            "{text:?} is not a size: write a number of bytes, or a number followed by K, M, G or \
             T, such as 64M"
        )
    })?;
    let unit = unit.strip_suffix("iB").unwrap_or(unit);
    let power = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        "E" => 6,
        _ => return Err(format!("{unit:?} is not a unit of size: use K, M, G or T")),
    };
    let bytes = 1024_u64.checked_pow(power).and_then(|unit| number.checked_mul(unit));
    bytes.ok_or_else(|| format!("{text:?} does not fit into 64 bits"))
}

/// Formats a time in minutes, in UTC: `2024-02-29 13:05`.
#[cfg(feature = "build")]
pub fn minute(time: Timestamp) -> String {
    formatted(time.sec, "%Y-%m-%d %H:%M")
}

/// Formats a time in nanoseconds, similar to RFC 3339: `2024-02-29T13:05:00.000000001Z`.
#[cfg(feature = "build")]
pub(crate) fn rfc3339(time: Timestamp) -> String {
    // Invalid nanoseconds of a damaged image are shown as stored.
    format!("{}.{:09}Z", formatted(time.sec, "%Y-%m-%dT%H:%M:%S"), time.nsec)
}

/// Formats a time in UTC with strftime(3) directives. Years above 9999, which no image supports, are formatted as
/// seconds since 1970.
#[cfg(feature = "build")]
fn formatted(sec: i64, format: &str) -> String {
    let time = jiff::Timestamp::from_second(sec);
    time.map_or_else(|_| format!("@{sec}"), |time| time.strftime(format).to_string())
}

/// Writes rows in columns as wide as their longest cell. Cells of the columns `right` are aligned on the right.
///
/// # Errors
/// If the output cannot be written.
#[cfg(feature = "build")]
pub(crate) fn write_columns<const N: usize>(
    rows: &[[String; N]],
    right: &[usize],
    out: &mut dyn std::io::Write,
) -> std::io::Result<()> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in rows {
        let mut line = String::new();
        for (at, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            line += &match at {
                at if at + 1 == N => cell.clone(),
                at if right.contains(&at) => format!("{cell:>width$}  "),
                _ => format!("{cell:<width$}  "),
            };
        }
        let is_short = row.last().is_some_and(String::is_empty);
        writeln!(out, "{}", if is_short { line.trim_end() } else { &line })?;
    }
    Ok(())
}

/// Converts bytes to text with replacement characters.
#[cfg(feature = "check")]
pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns bytes in hexadecimal if they are not UTF-8.
#[cfg(feature = "check")]
pub(crate) fn not_utf8(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).is_err().then(|| hex(bytes))
}

/// Formats a UUID with dashes.
pub(crate) fn uuid_text(uuid: &[u8; 16]) -> String {
    uuid::Uuid::from_bytes(*uuid).to_string()
}

/// Formats a path or address for users: escaped, without query, user and password.
pub fn shown(path: &std::path::Path) -> String {
    disk::address::shown(path.as_os_str().as_encoded_bytes())
}

/// Returns a path or address without query, user and password.
pub fn public(path: &std::path::Path) -> std::path::PathBuf {
    path.to_str()
        .map_or_else(|| path.to_owned(), |text| disk::address::public(text).into_owned().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse_size("0"), Ok(0));
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert_eq!(parse_size("3k"), Ok(3072));
        assert!(parse_size("16E").is_err(), "2^64 does not fit");
        for bad in ["", "M", "-1", "1X", "1.5G", "1 G", "99999999999999999999"] {
            assert!(parse_size(bad).is_err(), "{bad:?}");
        }
    }

    #[cfg(feature = "build")]
    #[test]
    fn times_are_gregorian_and_utc() {
        let at = |sec| rfc3339(Timestamp { sec, nsec: 1 });
        assert_eq!(at(0), "1970-01-01T00:00:00.000000001Z");
        assert_eq!(at(-1), "1969-12-31T23:59:59.000000001Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000000001Z");
        assert_eq!(at(4_107_542_399), "2100-02-28T23:59:59.000000001Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00.000000001Z");
        assert_eq!(minute(Timestamp { sec: 15_032_385_535, nsec: 0 }), "2446-05-10 22:38");
        // Extreme values must not panic.
        assert_eq!(minute(Timestamp { sec: i64::MIN, nsec: 0 }), format!("@{}", i64::MIN));
        assert_eq!(
            rfc3339(Timestamp { sec: i64::MAX, nsec: 0 }),
            format!("@{}.000000000Z", i64::MAX)
        );
        // As stored in a damaged image.
        let time = rfc3339(Timestamp { sec: 0, nsec: 1_073_741_823 });
        assert_eq!(time, "1970-01-01T00:00:00.1073741823Z");
    }
}
