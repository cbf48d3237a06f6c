//! Storing, comparing and displaying names of a directory.

use std::borrow::Cow;

use crate::dir::casefold;
use crate::format::hash::{NameHash, NameHasher, TOGETHER};
use crate::format::inode::flags;
use crate::inode::Handle;

/// Encoding and comparison of the names of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameEncoding {
    /// Stored unchanged and compared byte by byte.
    Plain,
    /// Stored unchanged and compared without regard to case.
    Folded,
    /// Encrypted.
    Encrypted,
}

/// Prefix of displayed names of encrypted directories.
const ENCRYPTED_PREFIX: &[u8] = b"encrypted:";
/// Maximum length of a stored name that is displayed whole. A longer name is displayed as [`ENCRYPTED_CUT`] bytes and a
/// checksum.
const ENCRYPTED_WHOLE_MAX: usize = 183;
const ENCRYPTED_CUT: usize = 168;

impl NameEncoding {
    pub(crate) fn of(dir: &Handle) -> Self {
        if dir.has_flag(flags::ENCRYPT) {
            Self::Encrypted
        } else if dir.has_flag(flags::CASEFOLD) {
            Self::Folded
        } else {
            Self::Plain
        }
    }

    /// Returns a form of the name that is equal for all its spellings.
    pub(crate) fn folded(self, name: &[u8]) -> Cow<'_, [u8]> {
        if self != Self::Folded {
            return Cow::Borrowed(name);
        }
        let mut folded = Vec::new();
        casefold::fold(name, &mut folded);
        Cow::Owned(folded)
    }

    /// Hashes a stored name. `scratch` receives its folded form.
    pub(crate) fn hash(self, hasher: &NameHasher, name: &[u8], scratch: &mut Vec<u8>) -> NameHash {
        if self == Self::Folded {
            casefold::fold(name, scratch);
            hasher.hash(scratch)
        } else {
            hasher.hash(name)
        }
    }

    /// Hashes several stored names.
    pub(crate) fn hash_together(
        self,
        hasher: &NameHasher,
        names: &[&[u8]; TOGETHER],
        scratch: &mut Vec<u8>,
    ) -> [NameHash; TOGETHER] {
        if self == Self::Folded {
            names.map(|name| self.hash(hasher, name, scratch))
        } else {
            hasher.hash_together(names)
        }
    }

    /// Returns the displayed form of a stored name, in `scratch` if it must be built. Returns `None` for a name that no
    /// directory can contain.
    ///
    /// Encrypted names are displayed in URL-safe base64 after `encrypted:`. Lookups accept this form.
    pub(crate) fn show<'a>(self, stored: &'a [u8], scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        if self == Self::Encrypted {
            show_encrypted(stored, scratch);
            return Some(scratch);
        }
        // Check all bytes without an early exit, so that the loop can be vectorised.
        let impossible = stored.iter().fold(false, |any, &b| any | (b == b'/') | (b == 0));
        let possible = !stored.is_empty() && !impossible;
        possible.then_some(stored)
    }
}

fn show_encrypted(stored: &[u8], shown: &mut Vec<u8>) {
    shown.clear();
    if matches!(stored, b"." | b"..") {
        shown.extend_from_slice(stored);
        return;
    }
    shown.extend_from_slice(ENCRYPTED_PREFIX);
    if stored.len() <= ENCRYPTED_WHOLE_MAX {
        base64(stored, shown);
    } else {
        base64(&stored[..ENCRYPTED_CUT], shown);
        shown.push(b'.');
        let checksum = crc32c::crc32c(stored);
        shown
            .extend((0..8).rev().map(|n| b"0123456789abcdef"[(checksum >> (n * 4)) as usize & 15]));
    }
}

/// Appends URL-safe base64 without padding (RFC 4648, section 5).
fn base64(bytes: &[u8], text: &mut Vec<u8>) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        let digits = (0..=chunk.len()).map(|n| DIGITS[(word >> (18 - 6 * n)) as usize & 63]);
        text.extend(digits);
    }
}

/// Returns the stored name for a name displayed by [`show_encrypted`]. Returns `None` for names that are displayed only
/// in part, and for names that it never produces.
fn stored_encrypted(shown: &[u8]) -> Option<Vec<u8>> {
    let text = shown.strip_prefix(ENCRYPTED_PREFIX)?;
    let mut stored = Vec::with_capacity(text.len() * 3 / 4);
    for chunk in text.chunks(4) {
        let mut word = 0_u32;
        for &digit in chunk {
            word = word << 6 | u32::from(base64_value(digit)?);
        }
        let bytes = (word << (6 * (4 - chunk.len()))).to_be_bytes();
        stored.extend_from_slice(&bytes[1..chunk.len()]);
    }
    (stored.len() <= ENCRYPTED_WHOLE_MAX).then_some(stored)
}

/// Returns the value of a digit of URL-safe base64.
fn base64_value(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    }
}

/// A name to search for.
pub(crate) struct Wanted<'n> {
    style: NameEncoding,
    /// The name in the form that stored names are compared with: folded, or as displayed.
    name: Cow<'n, [u8]>,
    /// The stored name, if it is encrypted and displayed whole.
    stored: Option<Vec<u8>>,
    scratch: Vec<u8>,
}

impl<'n> Wanted<'n> {
    pub(crate) fn new(style: NameEncoding, name: &'n [u8]) -> Self {
        let mut scratch = Vec::new();
        let stored = if style == NameEncoding::Encrypted { stored_encrypted(name) } else { None };
        let stored = stored.filter(|stored| {
            // Other digits may decode to the same bytes.
            show_encrypted(stored, &mut scratch);
            scratch == name
        });
        Self { style, name: style.folded(name), stored, scratch }
    }

    /// Returns the name itself if stored names are compared byte by byte.
    pub(crate) fn exact(&self) -> Option<&[u8]> {
        (self.style == NameEncoding::Plain).then_some(&self.name)
    }

    /// Returns its hash. Returns `None` if the displayed form does not determine it.
    pub(crate) fn hash(&self, hasher: &NameHasher) -> Option<NameHash> {
        match self.style {
            NameEncoding::Encrypted => self.stored.as_ref().map(|stored| hasher.hash(stored)),
            NameEncoding::Plain | NameEncoding::Folded => Some(hasher.hash(&self.name)),
        }
    }

    /// Returns whether it matches a stored name.
    pub(crate) fn is(&mut self, stored: &[u8]) -> bool {
        match self.style {
            NameEncoding::Plain => *self.name == *stored,
            NameEncoding::Folded => {
                casefold::fold(stored, &mut self.scratch);
                *self.name == *self.scratch
            }
            NameEncoding::Encrypted => match &self.stored {
                Some(wanted) => wanted == stored,
                None => {
                    show_encrypted(stored, &mut self.scratch);
                    *self.name == *self.scratch
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, expected) in [("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg")] {
            let mut text = Vec::new();
            base64(bytes.as_bytes(), &mut text);
            assert_eq!(text, expected.as_bytes());
        }
    }

    #[test]
    fn shown_encrypted_names_differ_and_fit() {
        let mut shown = std::collections::BTreeSet::new();
        for len in [1, 16, 183, 184, 255] {
            for last in [0, b'/', 0xff] {
                let mut stored = vec![b'/'; len];
                stored[len - 1] = last;
                let mut name = Vec::new();
                let name = NameEncoding::Encrypted.show(&stored, &mut name).unwrap();
                assert!(name.len() <= 255 && !name.contains(&b'/'));
                assert!(Wanted::new(NameEncoding::Encrypted, name).is(&stored));
                let whole = (len <= ENCRYPTED_WHOLE_MAX).then(|| stored.clone());
                assert_eq!(stored_encrypted(name), whole);
                shown.insert(name.to_vec());
            }
        }
        assert_eq!(shown.len(), 15);
    }

    #[test]
    fn impossible_names_are_not_shown() {
        for name in [&b"a/b"[..], b"", b"a\0"] {
            assert_eq!(NameEncoding::Plain.show(name, &mut Vec::new()), None);
        }
    }
}
