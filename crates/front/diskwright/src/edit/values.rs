//! Command-line syntax of owners, sizes and extended attribute values.

use crate::text::parse_size;

/// ID that system calls interpret as "no change".
const NO_ID: u32 = u32::MAX;

/// New owner; `None` keeps the old value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerChange {
    /// User ID.
    pub uid: Option<u32>,
    /// Group ID.
    pub gid: Option<u32>,
}

/// Parses numeric `USER`, `USER:GROUP` or `:GROUP`.
///
/// # Errors
/// A message with the expected syntax.
pub fn parse_owner_change(text: &str) -> Result<OwnerChange, String> {
    let problem = || {
        format!(
            "{text:?} is not an owner: write numbers such as 0:0, 1000 or :100, because names can \
             differ between the image and this host"
        )
    };
    let id = |text: &str| text.parse().ok().filter(|&id| id != NO_ID).ok_or_else(problem);
    match text.split_once(':') {
        None => Ok(OwnerChange { uid: Some(id(text)?), gid: None }),
        Some(("", gid)) => Ok(OwnerChange { uid: None, gid: Some(id(gid)?) }),
        Some((uid, gid)) => Ok(OwnerChange { uid: Some(id(uid)?), gid: Some(id(gid)?) }),
    }
}

/// New size, absolute or relative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeChange {
    /// Absolute size.
    To(u64),
    /// Increase (`+`).
    Grow(u64),
    /// Decrease, to at least 0 (`-`).
    Shrink(u64),
    /// Upper limit (`<`).
    AtMost(u64),
    /// Lower limit (`>`).
    AtLeast(u64),
    /// Rounded down to a multiple (`/`).
    RoundDown(u64),
    /// Rounded up to a multiple (`%`).
    RoundUp(u64),
}

impl SizeChange {
    /// Parses a size with an optional prefix `+`, `-`, `<`, `>`, `/` or `%`.
    ///
    /// # Errors
    /// A message with the expected syntax.
    pub fn parse(text: &str) -> Result<Self, String> {
        let change = match text.as_bytes().first() {
            Some(b'+') => Self::Grow,
            Some(b'-') => Self::Shrink,
            Some(b'<') => Self::AtMost,
            Some(b'>') => Self::AtLeast,
            Some(b'/') => Self::RoundDown,
            Some(b'%') => Self::RoundUp,
            _ => return parse_size(text).map(Self::To),
        };
        match change(parse_size(&text[1..])?) {
            Self::RoundDown(0) | Self::RoundUp(0) => {
                Err(format!("{text:?}: a multiple of 0 is invalid"))
            }
            change => Ok(change),
        }
    }

    /// Returns the new size of a file of `old` bytes, or `None` on overflow.
    pub(crate) fn apply(self, old: u64) -> Option<u64> {
        match self {
            Self::To(size) => Some(size),
            Self::Grow(by) => old.checked_add(by),
            Self::Shrink(by) => Some(old.saturating_sub(by)),
            Self::AtMost(size) => Some(old.min(size)),
            Self::AtLeast(size) => Some(old.max(size)),
            Self::RoundDown(unit) => Some(old - old % unit),
            Self::RoundUp(unit) => old.checked_next_multiple_of(unit),
        }
    }
}

/// Parses the value of an extended attribute like `setfattr`: `0x` and hexadecimal digits, `0s` and base64, or text.
/// Text in double quotes may contain the escapes `\\`, `\"` and octal `\000`.
///
/// # Errors
/// A message with the expected syntax.
pub fn parse_xattr_value(value: &[u8]) -> Result<Vec<u8>, String> {
    if let Some(digits) = value.strip_prefix(b"0x").or_else(|| value.strip_prefix(b"0X")) {
        return hex(digits).ok_or_else(|| "after 0x, write pairs of hexadecimal digits".into());
    }
    if let Some(text) = value.strip_prefix(b"0s").or_else(|| value.strip_prefix(b"0S")) {
        return base64(text).ok_or_else(|| "after 0s, write base64".into());
    }
    match value.strip_prefix(b"\"").and_then(|inner| inner.strip_suffix(b"\"")) {
        Some(inner) => unescape(inner).ok_or_else(|| {
            "inside quotes, write \\\\ for \\, \\\" for \", and \\ooo for a byte in octal".into()
        }),
        None => Ok(value.to_vec()),
    }
}

fn hex(digits: &[u8]) -> Option<Vec<u8>> {
    let nibble = |byte: u8| char::from(byte).to_digit(16);
    let pairs = digits.chunks(2).map(|pair| match pair {
        &[high, low] => Some((nibble(high)? << 4 | nibble(low)?) as u8),
        _ => None,
    });
    pairs.collect()
}

fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    if !text.len().is_multiple_of(4) || digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3);
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for &digit in group {
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(value);
        }
        bits <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'\\', [c @ (b'\\' | b'"'), ..]) => {
                bytes.push(*c);
                rest = &after[1..];
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = &after[3..];
            }
            (b'\\' | b'"', _) => return None,
            _ => bytes.push(byte),
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_in_four_forms() {
        for (text, value) in [
            ("plain text", &b"plain text"[..]),
            ("0x00fF", b"\x00\xff"),
            ("0saGVsbG8=", b"hello"),
            ("0saGk=", b"hi"),
            ("0sAAA=", b"\0\0"),
            ("0s", b""),
            ("\"a\\\\b\\\"c\\012\"", b"a\\b\"c\n"),
            ("", b""),
            ("\"", b"\""),
        ] {
            assert_eq!(parse_xattr_value(text.as_bytes()).unwrap(), value, "{text}");
        }
        for bad in ["0x0", "0xgg", "0sa", "0sa===", "0s????", "\"\\8\"", "\"a\"b\""] {
            assert!(parse_xattr_value(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_absolute_or_relative() {
        for (text, before, after) in [
            ("10", 3, Some(10)),
            ("+1K", 3, Some(1027)),
            ("+1", u64::MAX, None),
            ("-5", 3, Some(0)),
            ("<2", 3, Some(2)),
            (">2", 3, Some(3)),
            ("/4", 7, Some(4)),
            ("%4", 7, Some(8)),
        ] {
            assert_eq!(SizeChange::parse(text).unwrap().apply(before), after, "{text}");
        }
        for bad in ["", "+", "/0", "--1", "x"] {
            assert!(SizeChange::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn owners_are_numbers() {
        let change = |uid, gid| Ok(OwnerChange { uid, gid });
        assert_eq!(parse_owner_change("1"), change(Some(1), None));
        assert_eq!(parse_owner_change("1:2"), change(Some(1), Some(2)));
        assert_eq!(parse_owner_change(":2"), change(None, Some(2)));
        for bad in ["", ":", "1:", "root", "-1", "4294967295"] {
            assert!(parse_owner_change(bad).is_err(), "{bad}");
        }
    }
}
