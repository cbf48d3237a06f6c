//! Names of files as clients see them.
//!
//! Names in images are bytes. Clients need UTF-8, and XML forbids control characters. Bytes that do not fit appear as
//! characters of a private range, as Cygwin maps them: byte `b` as U+F000 + `b`. Characters of that range in a name are
//! treated in the same way, so every name has one shown form that leads back to it.

use std::ops::RangeInclusive;

use vfs::names::check_name;
use vfs::{Error, Result};

/// First character of the range.
const BASE: u32 = 0xf000;
const RANGE: RangeInclusive<u32> = BASE..=BASE + 0xff;

/// Returns the name that clients see.
pub(crate) fn shown(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if needs_escape(c) {
                let mut buffer = [0; 4];
                escape(c.encode_utf8(&mut buffer).as_bytes(), &mut text);
            } else {
                text.push(c);
            }
        }
        escape(chunk.invalid(), &mut text);
    }
    text
}

/// Returns the name in the image for a name that a client sent.
pub(crate) fn stored(shown: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(shown.len());
    for chunk in shown.utf8_chunks() {
        for c in chunk.valid().chars() {
            match escaped_byte(c) {
                Some(byte) => name.push(byte),
                None => name.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        name.extend_from_slice(chunk.invalid());
    }
    name
}

/// Returns the names on the path of a request, without empty ones.
///
/// # Errors
/// `NotFound` for a name that cannot exist, `NameTooLong` for one that is too long.
pub(crate) fn of_path(path: &[u8]) -> Result<Vec<Vec<u8>>> {
    let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
    names
        .map(|name| {
            let name = stored(name);
            check_name(&name).map_err(|error| match error {
                Error::NameTooLong => error,
                _ => Error::NotFound,
            })?;
            Ok(name)
        })
        .collect()
}

/// Returns whether a name is one of the files that macOS adds to directories.
pub(crate) fn is_of_macos(name: &[u8]) -> bool {
    name == b".DS_Store" || name.starts_with(b"._")
}

fn escape(bytes: &[u8], text: &mut String) {
    text.extend(bytes.iter().filter_map(|&byte| char::from_u32(BASE + u32::from(byte))));
}

/// Checks for characters that XML forbids, and those of the range.
fn needs_escape(c: char) -> bool {
    c.is_ascii_control() || matches!(c, '\u{fffe}' | '\u{ffff}') || RANGE.contains(&u32::from(c))
}

/// Returns the byte of an escape, if [`shown`] makes it.
fn escaped_byte(c: char) -> Option<u8> {
    let byte = u8::try_from(u32::from(c).checked_sub(BASE)?).ok()?;
    (byte != 0 && (byte.is_ascii_control() || !byte.is_ascii())).then_some(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_itself() {
        let samples: [&[u8]; 9] = [
            b"plain",
            "äöü €".as_bytes(),
            b"\xff\xfe latin \xe4",
            b"line\nbreak\x01\x7f",
            "\u{f041}\u{f0ff}\u{f000}".as_bytes(),
            "\u{fffe}x\u{ffff}".as_bytes(),
            b"\xc3",
            b"\xed\xa0\x80 surrogate",
            b"a\xef\xbc",
        ];
        for name in samples {
            let text = shown(name);
            assert_eq!(stored(text.as_bytes()), name, "{text:?}");
            assert!(!text.chars().any(char::is_control), "{text:?}");
        }
        for a in 1..=255 {
            for b in 1..=255 {
                assert_eq!(stored(shown(&[a, b]).as_bytes()), [a, b]);
            }
        }
    }

    #[test]
    fn escapes_make_no_separators() {
        for c in ["\u{f02f}", "\u{f000}", "\u{f02e}"] {
            assert_eq!(stored(c.as_bytes()), c.as_bytes());
        }
        assert_eq!(of_path("/a//b\u{f0ff}/".as_bytes()).unwrap(), [&b"a"[..], b"b\xff"]);
        assert!(matches!(of_path(b"/a/../b"), Err(Error::NotFound)));
        assert!(matches!(of_path(b"/a\0"), Err(Error::NotFound)));
        assert!(matches!(of_path(&[b'a'; 256]), Err(Error::NameTooLong)));
    }

    #[test]
    fn files_of_macos_are_known() {
        assert!(is_of_macos(b".DS_Store") && is_of_macos(b"._motd"));
        assert!(!is_of_macos(b".DS_Store2") && !is_of_macos(b".motd"));
    }
}
