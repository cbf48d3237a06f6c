//! Names in case-insensitive directories.
//!
//! ext4 compares and hashes the canonical decomposition of a name after full case folding, without Unicode's ignorable
//! characters. Its tables are those of Unicode 12.1; ours are newer and differ for characters assigned since. Names
//! that are not UTF-8 are compared and hashed unchanged. A file system in strict mode rejects such names, and e2fsck
//! renames them.

use caseless::Caseless;
use unicode_normalization::UnicodeNormalization;

/// Characters of `Default_Ignorable_Code_Point` (Unicode, DerivedCoreProperties.txt).
const IGNORABLE: [(u32, u32); 17] = [
    (0x00ad, 0x00ad),
    (0x034f, 0x034f),
    (0x061c, 0x061c),
    (0x115f, 0x1160),
    (0x17b4, 0x17b5),
    (0x180b, 0x180e),
    (0x200b, 0x200f),
    (0x202a, 0x202e),
    (0x2060, 0x206f),
    (0x3164, 0x3164),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfff8),
    (0x1_bca0, 0x1_bca3),
    (0x1_d173, 0x1_d17a),
    (0xe_0000, 0xe_0fff),
];

fn is_ignorable(c: char) -> bool {
    let c = u32::from(c);
    IGNORABLE.iter().any(|&(first, last)| (first..=last).contains(&c))
}

/// Replaces all bytes of a name after its valid UTF-8 prefix by dots, as e2fsck does. Returns whether the name changed.
pub(crate) fn make_valid(name: &mut [u8]) -> bool {
    let Err(error) = std::str::from_utf8(name) else { return false };
    name[error.valid_up_to()..].fill(b'.');
    true
}

/// Stores the folded form of a name in `folded`. A name that is not UTF-8 is copied unchanged.
pub(crate) fn fold(name: &[u8], folded: &mut Vec<u8>) {
    folded.clear();
    let Ok(text) = std::str::from_utf8(name) else {
        folded.extend_from_slice(name);
        return;
    };
    if text.is_ascii() {
        folded.extend(name.iter().map(u8::to_ascii_lowercase));
        return;
    }
    let mut bytes = [0; 4];
    for c in text.chars().nfd().default_case_fold().nfd().filter(|&c| !is_ignorable(c)) {
        folded.extend_from_slice(c.encode_utf8(&mut bytes).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(name: &str) -> String {
        let mut bytes = Vec::new();
        fold(name.as_bytes(), &mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn equal_names_fold_alike() {
        assert_eq!(folded("README.Md"), "readme.md");
        assert_eq!(folded("\u{c4}rger"), folded("a\u{308}RGER"));
        assert_eq!(folded("stra\u{df}e"), "strasse");
        assert_eq!(folded("a\u{200d}b\u{fe0f}"), "ab");
        assert_ne!(folded("a"), folded("b"));
    }

    #[test]
    fn invalid_names_end_in_dots() {
        for (before, after) in [
            (&b"A\xffA\xfe"[..], &b"A..."[..]),
            (b"abcd\xc3(\xe2\x82efg", b"abcd......."),
            (b"\xff", b"."),
        ] {
            let mut name = before.to_vec();
            assert!(make_valid(&mut name));
            assert_eq!(name, after);
            assert!(!make_valid(&mut name));
        }
    }

    #[test]
    fn other_bytes_stay() {
        let mut bytes = Vec::new();
        fold(b"A\xff", &mut bytes);
        assert_eq!(bytes, b"A\xff");
    }
}
