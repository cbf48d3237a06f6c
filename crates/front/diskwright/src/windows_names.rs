//! Names that Windows does not support, and their mapping.
//!
//! A byte is mapped to the code point U+F000 + byte, like Cygwin and Services for Unix do for characters. Here any byte
//! can be mapped, so the mapping is unique and reversible. Mapped are:
//!
//! - reserved characters (`\ : * ? " < > |` and those below 32), a trailing dot or space, and the first letter of a
//!   device name (`CON`, `nul.txt`);
//! - bytes that are not UTF-8, and those of characters in the mapping range;
//! - in names that differ only in case: all letters that case folding changes, in each of these names.
//!
//! These functions are pure and independent of the host.

use std::fmt;

/// Code point of byte 0 in the mapping, in the private use area.
const STAND_IN: u32 = 0xf000;

/// Reserved characters of Windows, without those below 32.
const RESERVED: &str = "\\:*?\"<>|";

/// Device names of Windows, with or without an extension. Digits are 0 to 9 and ¹, ² and ³.
const DEVICES: [&str; 6] = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];
const NUMBERED_DEVICES: [&str; 2] = ["COM", "LPT"];

/// Reason why Windows does not support a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The name is not UTF-8.
    NotText,
    /// The name contains a reserved character.
    Character(char),
    /// The name ends with a dot or space, which Windows removes.
    End(char),
    /// The name is a device name.
    Device,
    /// Another name in the directory differs only in case.
    Case,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotText => f.write_str("it is not UTF-8"),
            Self::Character(c) => write!(f, "it contains {c:?}"),
            Self::End(c) => write!(f, "it ends with {c:?}"),
            Self::Device => f.write_str("it is a device name there"),
            Self::Case => f.write_str("another name in its directory differs only in case"),
        }
    }
}

/// Returns why Windows does not support a name, independent of other names in its directory.
pub(crate) fn problem(name: &[u8]) -> Option<Problem> {
    let Ok(text) = std::str::from_utf8(name) else { return Some(Problem::NotText) };
    if let Some(c) = text.chars().find(|&c| is_reserved(c)) {
        return Some(Problem::Character(c));
    }
    match text.chars().next_back() {
        Some(c @ ('.' | ' ')) => Some(Problem::End(c)),
        _ if is_device(text) => Some(Problem::Device),
        _ => None,
    }
}

/// Returns the mapped name if Windows does not support `name`, otherwise the name itself. `has_twin` means that another
/// name in its directory has the same [folded] form.
pub(crate) fn mapped(name: &[u8], has_twin: bool) -> String {
    let mut text = String::with_capacity(name.len());
    let mut rest = name.len();
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            rest -= c.len_utf8();
            let is_last = rest == 0 && matches!(c, '.' | ' ');
            if is_last || is_reserved(c) || is_stand_in(c) || has_twin && !folds_to_itself(c) {
                c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| text.push(stand_in(byte)));
            } else {
                text.push(c);
            }
        }
        rest -= chunk.invalid().len();
        text.extend(chunk.invalid().iter().map(|&byte| stand_in(byte)));
    }
    if is_device(&text) {
        // Device names start with an ASCII letter.
        let first = stand_in(text.remove(0) as u8);
        text.insert(0, first);
    }
    text
}

/// Returns the original name; the inverse of [`mapped`].
pub(crate) fn unmapped(name: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_stand_in(c) {
                bytes.push((u32::from(c) - STAND_IN) as u8);
            } else {
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        bytes.extend_from_slice(chunk.invalid());
    }
    bytes
}

/// Returns the original path of a mapped path, or `None` if a component is not a valid name.
pub(crate) fn unmapped_path(path: &[u8]) -> Option<Vec<u8>> {
    let mut names = Vec::new();
    for name in path.split(|&byte| byte == b'/') {
        let meant = unmapped(name);
        let is_name = !meant.iter().any(|byte| matches!(byte, b'/' | 0))
            && (name == meant || !matches!(&meant[..], b"." | b".."));
        if !is_name {
            return None;
        }
        names.push(meant);
    }
    Some(names.join(&b'/'))
}

/// Error text for names that [`unmapped_path`] rejects.
pub(crate) const STANDS_FOR_NONE: &str =
    "its name decodes to an invalid file name; rename it, or copy without --map-names";

/// Returns a folded form that is equal for all names that Windows considers equal, and possibly for others.
pub(crate) fn folded(name: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars().flat_map(fold) {
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
        bytes.extend_from_slice(chunk.invalid());
    }
    bytes
}

/// Folds to the lower case of the upper case: `ß` and `ẞ` are equal to `ss`.
fn fold(c: char) -> impl Iterator<Item = char> {
    c.to_lowercase().flat_map(char::to_uppercase).flat_map(char::to_lowercase)
}

fn folds_to_itself(c: char) -> bool {
    fold(c).eq([c])
}

fn is_reserved(c: char) -> bool {
    c < ' ' || RESERVED.contains(c)
}

fn stand_in(byte: u8) -> char {
    char::from_u32(STAND_IN + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn is_stand_in(c: char) -> bool {
    (STAND_IN..STAND_IN + 256).contains(&u32::from(c))
}

fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end_matches(' ');
    let is_numbered = |device: &&str| {
        let number = stem.get(device.len()..).unwrap_or_default();
        stem.get(..device.len()).is_some_and(|start| start.eq_ignore_ascii_case(device))
            && number.chars().count() == 1
            && number.chars().all(|c| c.is_ascii_digit() || "¹²³".contains(c))
    };
    DEVICES.iter().any(|device| stem.eq_ignore_ascii_case(device))
        || NUMBERED_DEVICES.iter().any(is_numbered)
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_windows_does_not_support_are_reported() {
        for name in ["a b", ".x", "a..b", "console", "COM10", "com", "nul1", "ä", "\u{f03a}"] {
            assert_eq!(problem(name.as_bytes()), None, "{name}");
            assert!(name == "\u{f03a}" || mapped(name.as_bytes(), false) == name, "{name}");
        }
        for (name, expected) in [
            (&b"a:b"[..], Problem::Character(':')),
            (b"a\\b", Problem::Character('\\')),
            (b"a\x1fb", Problem::Character('\u{1f}')),
            (b"a.", Problem::End('.')),
            (b"a ", Problem::End(' ')),
            (b"a\xff", Problem::NotText),
            (b"con", Problem::Device),
            (b"Nul.tar.gz", Problem::Device),
            (b"aux .c", Problem::Device),
            (b"lpt1", Problem::Device),
            ("COM²".as_bytes(), Problem::Device),
            (b"conin$", Problem::Device),
        ] {
            assert_eq!(problem(name), Some(expected), "{}", name.escape_ascii());
        }
    }

    #[test]
    fn stand_ins_are_those_of_other_programs() {
        assert_eq!(mapped(b"a:b?", false), "a\u{f03a}b\u{f03f}");
        assert_eq!(mapped(b"end. .", false), "end. \u{f02e}");
        assert_eq!(mapped(b"CON", false), "\u{f043}ON");
        assert_eq!(mapped(b"\xe4", false), "\u{f0e4}");
        assert_eq!(mapped("\u{f03a}".as_bytes(), false), "\u{f0ef}\u{f080}\u{f0ba}");
        assert_eq!(mapped(b"Makefile", true), "\u{f04d}akefile");
        assert_eq!(mapped(b"makefile", true), "makefile");
        assert_eq!(mapped("Ä".as_bytes(), true), "\u{f0c3}\u{f084}");
    }

    #[test]
    fn folding_twice_is_folding_once() {
        for c in (0..=u32::from(char::MAX)).filter_map(char::from_u32) {
            let once: String = fold(c).collect();
            let twice: String = once.chars().flat_map(fold).collect();
            assert_eq!(once, twice, "{c:?}");
            assert!(!once.chars().any(is_stand_in) || is_stand_in(c), "{c:?}");
        }
    }

    /// Generates names from difficult parts: letters of both cases, reserved characters, device names, mapped
    /// characters, invalid UTF-8.
    fn names() -> impl Strategy<Value = Vec<u8>> {
        let text = |text: &'static str| Just(text.as_bytes().to_vec());
        let part = prop_oneof![
            prop::sample::select(vec![
                "a", "A", "b", ".", " ", ":", "ß", "ẞ", "ss", "İ", "i", "ı", "¹"
            ])
            .prop_map(|text| text.as_bytes().to_vec()),
            prop::sample::select(vec!["con", "NUL", "com", "1", "\u{f03a}", "\u{f041}", "ſ", "K"])
                .prop_map(|text| text.as_bytes().to_vec()),
            any::<char>().prop_map(|c| c.to_string().into_bytes()),
            any::<u8>().prop_map(|byte| vec![byte]),
            text("\u{f0ff}"),
        ];
        let name = prop::collection::vec(part, 1..6).prop_map(|parts| parts.concat());
        name.prop_filter("a name", |name| {
            !name.contains(&0) && !name.contains(&b'/') && name != b"." && name != b".."
        })
    }

    proptest! {
        #[test]
        fn the_names_of_a_directory_have_valid_names_of_their_own_that_lead_back(
            names in prop::collection::hash_set(names(), 1..12),
        ) {
            let mut alike: HashMap<Vec<u8>, u32> = HashMap::new();
            names.iter().for_each(|name| *alike.entry(folded(name)).or_default() += 1);
            let mut taken = HashSet::new();
            for name in &names {
                let stands = mapped(name, alike[&folded(name)] > 1);
                prop_assert_eq!(problem(stands.as_bytes()), None, "{:?}", stands);
                prop_assert_eq!(&unmapped(stands.as_bytes()), name);
                prop_assert!(stands.encode_utf16().count() <= name.len(), "{:?}", stands);
                prop_assert!(taken.insert(folded(stands.as_bytes())), "{:?}", stands);
            }
        }
    }
}
