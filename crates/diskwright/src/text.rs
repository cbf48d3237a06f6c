//! What people read and write: names, sizes, times and modes.

use std::fmt;

#[cfg(feature = "build")]
use vfs::Timestamp;
use vfs::{Attributes, FileType};

/// Bytes as text for people: what is not UTF-8, control characters and characters that reorder or
/// hide text are escaped (`\n`, `\xff`, `\u{202e}`), and so is `\`.
pub fn escaped(bytes: &[u8]) -> impl fmt::Display + '_ {
    fmt::from_fn(move |f| {
        for chunk in bytes.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\n' => f.write_str("\\n")?,
                    '\r' => f.write_str("\\r")?,
                    '\t' => f.write_str("\\t")?,
                    '\\' => f.write_str("\\\\")?,
                    c if c.is_ascii_control() => write!(f, "\\x{:02x}", u32::from(c))?,
                    c if c.is_control() || is_deceptive(c) => write!(f, "{}", c.escape_unicode())?,
                    c => fmt::Write::write_char(f, c)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    })
}

/// Characters that change how the text around them looks.
fn is_deceptive(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}')
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses a number of bytes: digits, then nothing or K, M, G, T, P, E (powers of 1024, also
/// spelled `k`, `KiB`).
///
/// # Errors
/// A sentence that says what is expected.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| {
        format!("{text:?} is not a size: write bytes, or a number and K, M, G or T, such as 64M")
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
    bytes.ok_or_else(|| format!("{text:?} is more than 64 bits hold"))
}

/// A number of bytes as `12.3 MiB`.
pub fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut power = 0;
    while power + 1 < units.len() && bytes >> (10 * (power + 1)) > 0 {
        power += 1;
    }
    match power {
        0 => format!("{bytes} bytes"),
        _ => format!("{:.1} {}", bytes as f64 / (1_u64 << (10 * power)) as f64, units[power]),
    }
}

/// A time to the minute, in UTC: `2024-02-29 13:05`.
#[cfg(feature = "build")]
pub fn minute(time: Timestamp) -> String {
    formatted(time.sec, "%Y-%m-%d %H:%M")
}

/// A time to the nanosecond in the manner of RFC 3339: `2024-02-29T13:05:00.000000001Z`.
#[cfg(feature = "build")]
pub fn rfc3339(time: Timestamp) -> String {
    // The nanoseconds of a damaged image may be more than a second: they are shown as they are.
    format!("{}.{:09}Z", formatted(time.sec, "%Y-%m-%dT%H:%M:%S"), time.nsec)
}

/// A time in UTC, with the directives of strftime(3). No image can hold a year of five digits: such a time
/// is shown as seconds since 1970.
#[cfg(feature = "build")]
fn formatted(sec: i64, format: &str) -> String {
    let time = jiff::Timestamp::from_second(sec);
    time.map_or_else(|_| format!("@{sec}"), |time| time.strftime(format).to_string())
}

/// Type and permissions as `ls -l` shows them: `-rwsr-xr-t`.
pub fn mode(attributes: &Attributes) -> String {
    let permissions = attributes.permissions;
    let mut text = String::with_capacity(10);
    text.push(attributes.file_type.letter());
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = permissions >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (permissions & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, false) => letter.to_ascii_uppercase(),
            (true, true) => letter,
        });
    }
    text
}

/// The word for a type in JSON.
pub fn type_word(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::CharDevice => "char-device",
        FileType::BlockDevice => "block-device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

/// A path as it is shown to people.
pub(crate) fn shown(path: &std::path::Path) -> String {
    escaped(path.as_os_str().as_encoded_bytes()).to_string()
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
        assert_eq!(size(1023), "1023 bytes");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(u64::MAX), "16.0 EiB");
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
        // The ends of the range are far away, but no reason to panic.
        assert_eq!(minute(Timestamp { sec: i64::MIN, nsec: 0 }), format!("@{}", i64::MIN));
        assert_eq!(
            rfc3339(Timestamp { sec: i64::MAX, nsec: 0 }),
            format!("@{}.000000000Z", i64::MAX)
        );
        // As it lies in a damaged image.
        let time = rfc3339(Timestamp { sec: 0, nsec: 1_073_741_823 });
        assert_eq!(time, "1970-01-01T00:00:00.1073741823Z");
    }

    #[test]
    fn what_could_deceive_a_reader_is_escaped() {
        assert_eq!(escaped("ärger".as_bytes()).to_string(), "ärger");
        assert_eq!(escaped(b"a\n\x1b[2J\\\xff").to_string(), "a\\n\\x1b[2J\\\\\\xff");
        assert_eq!(escaped("a\u{202e}b\u{85}".as_bytes()).to_string(), "a\\u{202e}b\\u{85}");
    }
}
